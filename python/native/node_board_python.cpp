#include "python/native/node_board_python.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "agent/ranks/node_board.hpp"
#include "agent/ranks/rank_record.hpp"
#include "python/native/gil_released.hpp"

namespace gradvane::python {
namespace {

namespace py = pybind11;
using agent::ranks::NodeBoard;

void tell(NodeBoard& board, std::string_view record) {
  if (record.size() != agent::ranks::kRecordBytes)
    throw py::value_error("a record of another size");
  board.tell(record);
}

bool wait(NodeBoard& board, double seconds) {
  const GilReleased released;
  return board.wait(
      std::chrono::milliseconds(static_cast<std::int64_t>(1000 * std::clamp(seconds, 0.0, 1e6))));
}

std::vector<py::bytes> told(const NodeBoard& board) {
  std::vector<py::bytes> records;
  for (const std::string& record : board.told()) records.emplace_back(record);
  return records;
}

}  // namespace

void define_node_board(py::module_& module) {
  module.def("make_node_board", &NodeBoard::make, py::arg("ranks"));
  module.def("remove_node_board", &NodeBoard::remove, py::arg("name"));
  py::class_<NodeBoard>(module, "NodeBoard")
      .def(py::init<const std::string&, int, int>(), py::arg("name"), py::arg("rank"),
           py::arg("ranks"))
      .def("tell", &tell, py::arg("record"))
      .def("wait", &wait, py::arg("seconds"))
      .def("told", &told)
      .def("gone", &NodeBoard::gone);
}

}  // namespace gradvane::python
