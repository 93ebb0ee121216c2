// gradvane._recording: recordings read, told, compared and shown. It needs no torch. Its types are in
// _recording.pyi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "exporters/http/access/host_rule.hpp"
#include "exporters/json/record_json.hpp"
#include "exporters/replay/diff.hpp"
#include "exporters/replay/replay.hpp"
#include "exporters/replay/story.hpp"
#include "python/recording/server.hpp"
#include "python/text.hpp"

namespace py = pybind11;

namespace gradvane::python {
namespace {

namespace rec = exporters::recording;

using WithoutGil = py::call_guard<py::gil_scoped_release>;

/// What is wrong with a file, for a person.
class RecordingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Names come from outside; what is not UTF-8 becomes U+FFFD, since Python's str knows nothing else.
std::string readable(const std::string& text) {
  return nlohmann::json::parse(exporters::to_text(text)).get<std::string>();
}

std::shared_ptr<const rec::Recording> read(const std::string& path) {
  auto [recording, error] = rec::read_recording(path);
  if (!recording) throw RecordingError(readable(path) + ": " + error);
  return recording;
}

std::string story(const std::string& path, bool json) {
  const rec::Story told = rec::story_of(*read(path));
  return json ? exporters::to_text(to_json(told)) : readable(text_of(told));
}

std::string diff(const std::string& a, std::optional<std::int64_t> step_a, const std::string& b,
                 std::optional<std::int64_t> step_b, bool json, double tolerance) {
  const auto of_a = read(a);
  const auto of_b = read(b);
  const rec::Diff found =
      rec::diff_of({a, of_a.get(), step_a}, {b, of_b.get(), step_b}, {.tolerance = tolerance});
  return json ? exporters::to_text(to_json(found)) : readable(text_of(found));
}

std::unique_ptr<RecordingServer> serve(const std::string& path, const std::string& address,
                                       std::uint16_t port, const std::string& allowed_hosts) {
  if (!exporters::are_host_names(allowed_hosts))
    throw std::runtime_error("allowed hosts are names with commas between them, without ports");
  return std::make_unique<RecordingServer>(*read(path), path, address, port, allowed_hosts);
}

}  // namespace

PYBIND11_MODULE(_recording, module) {
  py::register_exception<RecordingError>(module, "RecordingError", PyExc_ValueError);
  module.def(
      "read", [](const std::string& path) { return exporters::to_text(to_json(*read(path))); },
      py::arg("path"), WithoutGil());
  module.def(
      "steps", [](const std::string& path) { return rec::step_log_of(*read(path)); },
      py::arg("path"), WithoutGil());
  module.def("story", &story, py::arg("path"), py::arg("json") = false, WithoutGil());
  module.def("diff", &diff, py::arg("a"), py::arg("step_a"), py::arg("b"), py::arg("step_b"),
             py::arg("json") = false, py::arg("tolerance") = 1e-3, WithoutGil());
  py::class_<RecordingServer>(module, "Server")
      .def_property_readonly("url", &RecordingServer::url)
      .def("stop", &RecordingServer::stop, WithoutGil());
  module.def("serve", &serve, py::arg("path"), py::arg("address"), py::arg("port"),
             py::arg("allowed_hosts") = "", WithoutGil());
}

}  // namespace gradvane::python
