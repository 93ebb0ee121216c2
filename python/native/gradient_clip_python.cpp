// Norms and scaling by torch's own operators, called through gradvane._torch_ops.
#include <pybind11/pybind11.h>

#include "agent/step/gradient_clip.hpp"
#include "python/native/torch_interface.hpp"

namespace gradvane::agent {

namespace py = pybind11;
using collectors::Tensor;

namespace {

py::list list_of(const std::vector<Tensor>& tensors) {
  py::list list;
  for (const Tensor& tensor : tensors) list.append(py::handle(tensor.object()));
  return list;
}

py::handle handle_of(const Tensor& tensor) { return {tensor.object()}; }

template <typename... Arguments>
Tensor called(const char* name, Arguments&&... arguments) {
  const py::handle ops(python::torch_interface().ops);
  return Tensor::taking(
      py::object(ops.attr(name)(std::forward<Arguments>(arguments)...)).release().ptr());
}

}  // namespace

void scale_gradients(const std::vector<Tensor>& gradients, double coefficient) {
  (void)called("scale_gradients", list_of(gradients), coefficient);
}

Tensor norm_with_torch(const std::vector<Tensor>& gradients) {
  return called("norm_with_torch", list_of(gradients));
}

void clip_to_norm(const std::vector<Tensor>& gradients, const Tensor& norm, double max_norm) {
  (void)called("clip_to_norm", list_of(gradients), handle_of(norm), max_norm);
}

Tensor in_norm_type(const Tensor& norm, const std::vector<Tensor>& parameters) {
  return called("in_norm_type", handle_of(norm), list_of(parameters));
}

Tensor scalar_tensor(double value) { return called("scalar_tensor", value); }

}  // namespace gradvane::agent
