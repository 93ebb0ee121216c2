#pragma once
// The ranks' board as gradvane._native.NodeBoard.
#include <pybind11/pybind11.h>

namespace gradvane::python {

void define_node_board(pybind11::module_& module);

}  // namespace gradvane::python
