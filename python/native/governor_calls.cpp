#include "python/native/governor_calls.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/native/torch/torch_ops.hpp"
#include "record/governor_summary.hpp"
#include "record/names.hpp"

namespace gradvane::python {

namespace py = pybind11;
using namespace py::literals;  // "name"_a: an argument

void define_governor(py::class_<PythonAgent, PythonAgentPtr>& agent) {
  agent.def("acts", [](PythonAgent& self) { return self.governor().acts(); })
      .def("acts_on_nonfinite",
           [](PythonAgent& self) { return self.governor().acts_on_nonfinite(); })
      .def("may_leave_to_device",
           [](PythonAgent& self) { return self.governor().may_leave_to_device(); })
      .def("snapshot_pace",
           [](PythonAgent& self) {
             const agent::SnapshotPace& pace = self.governor().pace();
             return std::tuple(pace.steps, pace.seconds, pace.budget, pace.is_common);
           })
      .def("rollback_options",
           [](PythonAgent& self) {
             const auto& options = self.governor().rollback_options();
             return std::tuple(agent::name_of(options.optimizer), options.lr_factor);
           })
      .def("rollback_device_sync",
           [](PythonAgent& self) { return self.governor().rollback_device_sync(); })
      .def("may_snapshot", [](PythonAgent& self) { return self.governor().may_snapshot(); })
      .def(
          "count_snapshot",
          [](PythonAgent& self, const std::string& result) {
            if (const auto known = record::named<record::SnapshotResult>(result))
              self.governor().count_snapshot(*known);
          },
          "result"_a)
      .def(
          "set_snapshots",
          [](PythonAgent& self, const std::vector<std::pair<std::int64_t, double>>& newest_first) {
            std::vector<record::KeptSnapshot> good;
            for (const auto& [run_step, age] : newest_first) good.push_back({run_step, age});
            self.governor().set_snapshots(good);
          },
          "newest_first"_a)
      .def("diverges_since", [](PythonAgent& self) { return self.governor().diverges_since(); })
      .def("governor", [](PythonAgent& self) { return self.governor().status(); })
      .def("governor_reason", [](PythonAgent& self) { return self.governor().reason(); })
      .def("resume", [](PythonAgent& self) { self.governor().resume(); })
      .def(
          "note_rollback",
          [](PythonAgent& self, const std::string& why, std::int64_t run_step, std::int64_t to_step,
             std::int64_t generation, double snapshot_age_seconds,
             std::optional<std::int64_t> batches_lost, const std::string& optimizer,
             double lr_factor, bool is_by_policy) {
            self.note_rollback({.why = why,
                                .run_step = run_step,
                                .to_step = to_step,
                                .generation = generation,
                                .snapshot_age_seconds = snapshot_age_seconds,
                                .batches_lost = batches_lost,
                                .optimizer = optimizer,
                                .lr_factor = lr_factor},
                               is_by_policy);
          },
          "why"_a, "run_step"_a, "to_step"_a, "generation"_a, "snapshot_age_seconds"_a,
          "batches_lost"_a.none(), "optimizer"_a, "lr_factor"_a, "is_by_policy"_a)
      .def("stop_instead", [](PythonAgent& self) { self.governor().stop_instead(); })
      .def("stop_at_next_step", [](PythonAgent& self) { self.governor().stop_at_next_step(); })
      .def("agrees", [](PythonAgent& self) { return self.governor().agrees(); })
      .def(
          "tell", [](PythonAgent& self, int optimizer) { return py::bytes(self.tell(optimizer)); },
          "optimizer"_a)
      .def("note_rank_wait", &PythonAgent::note_rank_wait, "seconds"_a)
      .def("checks_before_reduction", &PythonAgent::checks_before_reduction)
      .def(
          "note_own_gradient",
          [](PythonAgent& self, const py::object& param, std::int64_t element) {
            self.note_own_gradient(tensor_of(param), element);
          },
          "param"_a, "element"_a)
      .def(
          "judge_together",
          [](PythonAgent& self, int optimizer, const std::vector<std::string>& records) {
            return static_cast<int>(self.judge_together(optimizer, records));
          },
          "optimizer"_a, "records"_a)
      .def(
          "judge_alone",
          [](PythonAgent& self, int optimizer, const std::string& why) {
            return static_cast<int>(self.judge_alone(optimizer, why));
          },
          "optimizer"_a, "why"_a)
      .def("agreed_snapshot", [](PythonAgent& self) { return self.governor().agreed_snapshot(); })
      .def("last_run_step", &PythonAgent::last_run_step);
}

}  // namespace gradvane::python
