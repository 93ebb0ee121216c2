#pragma once
// What the agent reports of steps and incidents, as classes of gradvane._native.
#include <torch/csrc/utils/pybind.h>

namespace gradvane::python {

/// Defines Blame, StepResult, Appearance, Incident and Status. Their attributes can only be read.
void define_records(py::module_& module);

}  // namespace gradvane::python
