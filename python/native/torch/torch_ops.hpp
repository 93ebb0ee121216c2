#pragma once
// Calls of gradvane._torch_ops, where torch itself has to do something with tensors.
#include <pybind11/pybind11.h>

#include <new>
#include <utility>

#include "collectors/tensors/tensor.hpp"
#include "python/native/torch/torch_interface.hpp"
#include "python/text.hpp"

namespace gradvane::python {

/// What the function of this name there returns. With the GIL. Throws what it raises.
template <typename... Arguments>
pybind11::object torch_op(const char* name, Arguments&&... arguments) {
  return pybind11::handle(torch_interface().ops).attr(name)(std::forward<Arguments>(arguments)...);
}

/// An argument of it: None for an undefined tensor.
inline pybind11::object object_of(const collectors::Tensor& tensor) {
  if (tensor.object() != nullptr)
    return pybind11::reinterpret_borrow<pybind11::object>(tensor.object());
  if (!tensor.defined()) return pybind11::none();
  const TorchInterface& torch = torch_interface();
  TensorHandle handle = nullptr;
  if (torch.copy_handle(tensor.handle(), &handle) != 0) throw std::bad_alloc();
  const pybind11::capsule capsule(handle);
  return pybind11::handle(torch.from_handle)(capsule);
}

/// A result of it; what is no tensor becomes an undefined one.
inline collectors::Tensor tensor_of(const pybind11::object& object) {
  return torch_interface().is_tensor(object.ptr()) ? collectors::Tensor::of(object.ptr())
                                                   : collectors::Tensor();
}

}  // namespace gradvane::python
