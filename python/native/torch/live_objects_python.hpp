#pragma once
// A look through the objects of the process as gradvane._native.live_objects().
#include <pybind11/pybind11.h>

#include "python/text.hpp"

namespace gradvane::python {

void define_live_objects(pybind11::module_& module);

}  // namespace gradvane::python
