#pragma once
// The governor, as gradvane._native.Agent has it for the package: its verdicts, snapshots, rollbacks and agreement.
#include <pybind11/pybind11.h>

#include "python/native/python_agent.hpp"
#include "python/text.hpp"

namespace gradvane::python {

void define_governor(pybind11::class_<PythonAgent, PythonAgentPtr>& agent);

}  // namespace gradvane::python
