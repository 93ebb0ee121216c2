#pragma once
// What the agent reports of steps and incidents, as classes of gradvane._native.
#include <pybind11/pybind11.h>

#include "python/text.hpp"

namespace gradvane::python {

namespace py = pybind11;

/// Defines Blame, StepResult, Appearance, Incident and Status. Their attributes can only be read.
void define_records(py::module_& module);

}  // namespace gradvane::python
