// Norms and scaling by torch's own operators, called through gradvane._torch_ops.
#include <pybind11/pybind11.h>

#include "agent/step/gradient_clip.hpp"
#include "python/native/torch/torch_ops.hpp"
#include "python/text.hpp"

namespace gradvane::agent {

namespace py = pybind11;
using collectors::Tensor;
using python::object_of;
using python::tensor_of;
using python::torch_op;

namespace {

py::list list_of(const std::vector<Tensor>& tensors) {
  py::list list;
  for (const Tensor& tensor : tensors) list.append(object_of(tensor));
  return list;
}

}  // namespace

void scale_gradients(const std::vector<Tensor>& gradients, double coefficient) {
  torch_op("scale_gradients", list_of(gradients), coefficient);
}

Tensor norm_with_torch(const std::vector<Tensor>& gradients) {
  return tensor_of(torch_op("norm_with_torch", list_of(gradients)));
}

void clip_to_norm(const std::vector<Tensor>& gradients, const Tensor& norm, double max_norm) {
  torch_op("clip_to_norm", list_of(gradients), object_of(norm), max_norm);
}

void note_written(const std::vector<Tensor>& gradients) {
  torch_op("note_written", list_of(gradients));
}

Tensor in_norm_type(const Tensor& norm, const std::vector<Tensor>& parameters) {
  return tensor_of(torch_op("in_norm_type", object_of(norm), list_of(parameters)));
}

Tensor scalar_tensor(double value) { return tensor_of(torch_op("scalar_tensor", value)); }

}  // namespace gradvane::agent
