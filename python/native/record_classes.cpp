#include "python/native/record_classes.hpp"

#include <pybind11/stl.h>

#include <string>
#include <string_view>

#include "agent/include/gradvane/agent.hpp"

namespace gradvane::python {
namespace {

/// Before the first step there is no record whose names these are.
std::string named(std::string_view name) { return std::string(name.empty() ? "none" : name); }

}  // namespace

void define_records(py::module_& module) {
  py::class_<Blame>(module, "Blame")
      .def_readonly("site", &Blame::site)
      .def_readonly("kind", &Blame::kind)
      .def_readonly("param", &Blame::param)
      .def_readonly("element", &Blame::element);
  py::class_<StepResult>(module, "StepResult")
      .def_readonly("step", &StepResult::step)
      .def_readonly("run_step", &StepResult::run_step)
      .def_readonly("micro_steps", &StepResult::micro_steps)
      .def_property_readonly("read_at", [](const StepResult& self) { return named(self.read_at); })
      .def_property_readonly("skipped", [](const StepResult& self) { return named(self.skipped); })
      .def_readonly("loss", &StepResult::loss)
      .def_readonly("grad_norm", &StepResult::grad_norm)
      .def_readonly("grad_norm_at_step", &StepResult::grad_norm_at_step)
      .def_readonly("clip_coefficient", &StepResult::clip_coefficient)
      .def_readonly("loss_scale", &StepResult::loss_scale)
      .def_readonly("learning_rates", &StepResult::learning_rates)
      .def_property_readonly("nan", [](const StepResult& self) { return self.grad_nonfinite.nan; })
      .def_property_readonly("pos_inf",
                             [](const StepResult& self) { return self.grad_nonfinite.pos_inf; })
      .def_property_readonly("neg_inf",
                             [](const StepResult& self) { return self.grad_nonfinite.neg_inf; })
      .def_readonly("blame", &StepResult::blame);
  py::class_<Appearance>(module, "Appearance")
      .def_readonly("run_step", &Appearance::run_step)
      .def_readonly("blame", &Appearance::blame)
      .def_readonly("last_finite", &Appearance::last_finite);
  py::class_<Incident>(module, "Incident")
      .def_readonly("id", &Incident::id)
      .def_readonly("kind", &Incident::kind)
      .def_readonly("rank", &Incident::rank)
      .def_readonly("first_step", &Incident::first_step)
      .def_readonly("last_step", &Incident::last_step)
      .def_readonly("steps", &Incident::steps)
      .def_readonly("opened_at", &Incident::opened_at)
      .def_readonly("closed_at", &Incident::closed_at)
      .def_readonly("reopened", &Incident::reopened)
      .def_readonly("blame", &Incident::blame)
      .def_readonly("order", &Incident::order)
      .def_readonly("began_in", &Incident::began_in)
      .def_readonly("micro_step", &Incident::micro_step)
      .def_readonly("module", &Incident::module)
      .def_readonly("evidence", &Incident::evidence)
      .def_readonly("last_good_step", &Incident::last_good_step)
      .def_readonly("last_good_checkpoint", &Incident::last_good_checkpoint);
  py::class_<GovernorStatus>(module, "GovernorStatus")
      .def_readonly("should_stop", &GovernorStatus::should_stop)
      .def_readonly("reason", &GovernorStatus::reason)
      .def_readonly("skipped_steps", &GovernorStatus::skipped_steps)
      .def_readonly("skips_in_a_row", &GovernorStatus::skips_in_a_row)
      .def_readonly("is_state_good", &GovernorStatus::is_state_good)
      .def_readonly("last_good_step", &GovernorStatus::last_good_step);
  py::class_<Status>(module, "Status")
      .def_readonly("state", &Status::state)
      .def_readonly("reason", &Status::reason)
      .def_readonly("steps", &Status::steps)
      .def_readonly("nonfinite_steps", &Status::nonfinite_steps)
      .def_readonly("steps_per_second", &Status::steps_per_second)
      .def_readonly("latest", &Status::latest);
}

}  // namespace gradvane::python
