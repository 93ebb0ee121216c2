#pragma once
// Where the records of ranks meet, as gradvane._native.Meeting.
#include <pybind11/pybind11.h>

#include "python/text.hpp"

namespace gradvane::python {

void define_meeting(pybind11::module_& module);

}  // namespace gradvane::python
