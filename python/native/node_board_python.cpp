#include "python/native/node_board_python.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/ranks/node_board.hpp"
#include "python/native/gil_released.hpp"

namespace gradvane::python {
namespace {

namespace py = pybind11;
using agent::ranks::NodeBoard;

bool wait(NodeBoard& board, double seconds) {
  const GilReleased released;
  return board.wait(
      std::chrono::milliseconds(static_cast<std::int64_t>(1000 * std::clamp(seconds, 0.0, 1e6))));
}

py::bytes told_by(const NodeBoard& board, int rank) {
  if (rank < 0 || rank >= board.ranks()) throw py::index_error("there is no such rank");
  return board.told_by(rank);
}

}  // namespace

void define_node_board(py::module_& module) {
  module.def("this_node", &agent::ranks::this_node);
  module.def("make_node_board", &NodeBoard::make, py::arg("ranks"), py::arg("size"));
  module.def("remove_node_board", &NodeBoard::remove, py::arg("name"));
  py::class_<NodeBoard>(module, "NodeBoard")
      .def(py::init<const std::string&, int, int, std::size_t>(), py::arg("name"), py::arg("rank"),
           py::arg("ranks"), py::arg("size"))
      .def("tell", &NodeBoard::tell, py::arg("record"))
      .def("wait", &wait, py::arg("seconds"))
      .def("told_by", &told_by, py::arg("rank"))
      .def("gone", &NodeBoard::gone);
}

}  // namespace gradvane::python
