#include "python/native/meeting_python.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/ranks/meeting.hpp"
#include "agent/ranks/node_board.hpp"
#include "python/native/gil_released.hpp"

namespace gradvane::python {
namespace {

namespace py = pybind11;
using agent::ranks::Meeting;

/// A function of Python's that C++ may copy, call and let go of without the GIL.
std::shared_ptr<py::function> shared(py::function function) {
  return {new py::function(std::move(function)), [](py::function* held) {
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

AllGather all_gather(py::function function) {
  return [gather = shared(std::move(function))](const std::string& mine) {
    const py::gil_scoped_acquire gil;
    return (*gather)(py::bytes(mine)).cast<std::vector<std::string>>();
  };
}

GatherAmong gather_among(py::function function) {
  return [among = shared(std::move(function))](const std::vector<int>& ranks) {
    const py::gil_scoped_acquire gil;
    return all_gather((*among)(ranks));
  };
}

/// Ctrl-C ends a wait.
void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

std::unique_ptr<Meeting> make_meeting(py::function gather, py::function among, double patience,
                                      std::string node) {
  const auto milliseconds = static_cast<std::int64_t>(1000 * std::clamp(patience, 0.0, 1e6));
  return std::make_unique<Meeting>(
      all_gather(std::move(gather)), gather_among(std::move(among)),
      agent::ranks::MeetingOptions{.patience = std::chrono::milliseconds(milliseconds),
                                   .node = std::move(node),
                                   .in_waits = check_signals});
}

std::vector<py::bytes> exchange(Meeting& meeting, const std::string& record) {
  std::vector<std::string> all;
  {
    const GilReleased released;
    all = meeting.exchange(record);
  }
  return {all.begin(), all.end()};
}

}  // namespace

void define_meeting(py::module_& module) {
  module.def("this_node", &agent::ranks::this_node);
  py::class_<Meeting>(module, "Meeting")
      .def(py::init(&make_meeting), py::arg("gather"), py::arg("among"), py::arg("patience"),
           py::arg("node"))
      .def("exchange", &exchange, py::arg("record"))
      .def_property_readonly(
          "place", [](const Meeting& meeting) { return std::string(name_of(meeting.place())); });
}

}  // namespace gradvane::python
