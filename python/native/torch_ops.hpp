#pragma once
// Calls of gradvane._torch_ops, where torch itself has to do something with tensors.
#include <pybind11/pybind11.h>

#include <utility>

#include "collectors/tensors/tensor.hpp"
#include "python/native/torch_interface.hpp"

namespace gradvane::python {

/// What the function of this name there returns. With the GIL. Throws what it raises.
template <typename... Arguments>
pybind11::object torch_op(const char* name, Arguments&&... arguments) {
  return pybind11::handle(torch_interface().ops).attr(name)(std::forward<Arguments>(arguments)...);
}

/// An argument of it.
inline pybind11::handle object_of(const collectors::Tensor& tensor) { return {tensor.object()}; }

/// A result of it; what is no tensor becomes an undefined one.
inline collectors::Tensor tensor_of(const pybind11::object& object) {
  return torch_interface().is_tensor(object.ptr()) ? collectors::Tensor::of(object.ptr())
                                                   : collectors::Tensor();
}

}  // namespace gradvane::python
