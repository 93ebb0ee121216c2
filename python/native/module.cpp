// gradvane._native: the C++ agent, for the Python package alone. Its types are in _native.pyi.
#include <pybind11/stl.h>
#include <torch/version.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "agent/public/option_table.hpp"
#include "agent/worker/process_signals.hpp"
#include "python/native/gil_released.hpp"
#include "python/native/python_agent.hpp"
#include "record/names.hpp"

namespace gradvane::python {
namespace {

using WithoutGil = py::call_guard<GilReleased>;
using Class = py::class_<PythonAgent, PythonAgentPtr>;
using collectors::FiniteChecks;

/// None becomes an undefined tensor.
at::Tensor tensor_or_none(const py::object& object) {
  return THPVariable_Check(object.ptr()) ? THPVariable_Unpack(object.ptr()) : at::Tensor();
}

constexpr std::array<const char*, 3> kTraceModes{"off", "next_step", "always"};

record::TracedAt traced_at(const std::string& name) {
  for (std::size_t i = 0; i < record::kTracedAtNames.size(); ++i)
    if (record::kTracedAtNames[i] == name) return static_cast<record::TracedAt>(i);
  throw std::invalid_argument("nothing is traced to " + name);
}

record::ReadAt read_at(const std::string& name) {
  for (std::size_t i = 0; i < record::kReadAtNames.size(); ++i)
    if (record::kReadAtNames[i] == name) return static_cast<record::ReadAt>(i);
  throw std::invalid_argument("there is no place called " + name);
}

/// The tensors among `items`, by name only: a reference each would cost more than looking. Null for what
/// is none.
std::vector<const void*> identities(const py::list& items) {
  std::vector<const void*> all;
  all.reserve(items.size());
  for (const py::handle item : items) {
    const bool is_tensor = THPVariable_Check(item.ptr());
    all.push_back(is_tensor ? THPVariable_Unpack(item.ptr()).unsafeGetTensorImpl() : nullptr);
  }
  return all;
}

py::dict to_dict(const std::optional<Blame>& blame) {
  py::dict dict;
  if (!blame) return dict;
  dict["site"] = blame->site;
  dict["kind"] = blame->kind;
  dict["param"] = blame->param;
  dict["element"] = blame->element;
  return dict;
}

py::dict to_dict(const StepResult& result) {
  py::dict dict;
  dict["step"] = result.step;
  dict["run_step"] = result.run_step;
  dict["micro_steps"] = result.micro_steps;
  dict["read_at"] = result.read_at.empty() ? "none" : std::string(result.read_at);
  dict["skipped"] = result.skipped.empty() ? "none" : std::string(result.skipped);
  dict["loss"] = result.loss;
  dict["grad_norm"] = result.grad_norm;
  dict["grad_norm_at_step"] = result.grad_norm_at_step;
  dict["clip_coefficient"] = result.clip_coefficient;
  dict["loss_scale"] = result.loss_scale;
  dict["learning_rates"] = result.learning_rates;
  dict["nan"] = result.grad_nonfinite.nan;
  dict["pos_inf"] = result.grad_nonfinite.pos_inf;
  dict["neg_inf"] = result.grad_nonfinite.neg_inf;
  dict["blame"] = to_dict(result.blame);
  return dict;
}

py::dict to_dict(const Incident& incident) {
  py::dict dict;
  dict["id"] = incident.id;
  dict["kind"] = std::string(incident.kind);
  dict["rank"] = incident.rank;
  dict["first_step"] = incident.first_step;
  dict["last_step"] = incident.last_step;
  dict["steps"] = incident.steps;
  dict["opened_at"] = incident.opened_at;
  dict["closed_at"] = incident.closed_at;
  dict["reopened"] = incident.reopened;
  dict["blame"] = to_dict(incident.blame);
  py::list order;
  for (const Appearance& appearance : incident.order) {
    py::dict seen;
    seen["run_step"] = appearance.run_step;
    seen["blame"] = to_dict(std::optional(appearance.blame));
    seen["last_finite"] = appearance.last_finite;
    order.append(std::move(seen));
  }
  dict["order"] = std::move(order);
  dict["began_in"] = incident.began_in;
  dict["micro_step"] = incident.micro_step;
  dict["module"] = incident.module;
  dict["evidence"] = incident.evidence;
  return dict;
}

template <typename Value>
py::dict without_gil(Value (PythonAgent::*get)(), PythonAgent& agent) {
  Value value;
  {
    const GilReleased released;
    value = (agent.*get)();
  }
  return to_dict(value);
}

void define_hooks(Class& agent) {
  agent.def("before_backward", &PythonAgent::before_backward, WithoutGil())
      .def("after_backward",
           [](PythonAgent& self, const py::object& loss) {
             const at::Tensor tensor = tensor_or_none(loss);
             const GilReleased released;
             self.after_backward(tensor);
           })
      .def("read",
           [](PythonAgent& self, int optimizer, const std::string& where, const py::object& scale,
              bool is_scaled) {
             const at::Tensor tensor = tensor_or_none(scale);
             const GilReleased released;
             return self.read(optimizer, read_at(where), tensor, is_scaled);
           })
      .def("unused", &PythonAgent::unused, WithoutGil())
      .def("discard",
           [](PythonAgent& self, int optimizer, const py::object& scale, bool is_scaled) {
             const at::Tensor tensor = tensor_or_none(scale);
             const GilReleased released;
             self.discard(optimizer, tensor, is_scaled);
           })
      .def("note_clip", &PythonAgent::note_clip, WithoutGil())
      .def("step_begins", &PythonAgent::step_begins, WithoutGil())
      .def("step_ends", &PythonAgent::step_ends, WithoutGil())
      .def("evaluated", &PythonAgent::evaluated, WithoutGil())
      .def("step_failed", &PythonAgent::step_failed, WithoutGil())
      .def("step_skipped", &PythonAgent::step_skipped, WithoutGil())
      .def("loop_read", &PythonAgent::loop_read, WithoutGil())
      .def("loop_step_ends", &PythonAgent::loop_step_ends, WithoutGil())
      .def("parts_begin", &PythonAgent::parts_begin, WithoutGil())
      .def("read_parts",
           [](PythonAgent& self, int optimizer, const py::list& params) {
             std::vector<at::Tensor> tensors;
             for (const py::handle param : params)
               if (THPVariable_Check(param.ptr()))
                 tensors.push_back(THPVariable_Unpack(param.ptr()));
             const GilReleased released;
             self.read_parts(optimizer, tensors);
           })
      .def("parts_end",
           [](PythonAgent& self, int optimizer, const py::object& loss) {
             const at::Tensor tensor = tensor_or_none(loss);
             const GilReleased released;
             self.parts_end(optimizer, tensor);
           })
      .def("owners", [](PythonAgent& self, const py::list& params) {
        const auto given = identities(params);
        ParameterOwners::Owners owners;
        {
          const GilReleased released;
          owners = self.owners(given);
        }
        return py::make_tuple(owners.optimizers, owners.is_whole);
      });
}

void define_values(Class& agent) {
  agent
      .def("grad_norm",
           [](PythonAgent& self, int optimizer) -> py::object {
             at::Tensor norm;
             {
               const GilReleased released;
               norm = self.grad_norm(optimizer);
             }
             if (!norm.defined()) return py::none();
             return py::reinterpret_steal<py::object>(THPVariable_Wrap(norm));
           })
      .def("clip_grad_norm",
           [](PythonAgent& self, int optimizer, double max_norm, bool just_read) {
             at::Tensor norm;
             {
               const GilReleased released;
               norm = self.clip_grad_norm(optimizer, max_norm, just_read);
             }
             return py::reinterpret_steal<py::object>(THPVariable_Wrap(norm));
           })
      .def("is_sharded", &PythonAgent::is_sharded, WithoutGil())
      .def("take_loss",
           [](PythonAgent& self, const py::object& loss) {
             const at::Tensor tensor = tensor_or_none(loss);
             const GilReleased released;
             self.take_loss(tensor);
           })
      .def("log",
           [](PythonAgent& self, const std::string& name, const py::object& value) {
             const at::Tensor tensor = tensor_or_none(value);
             if (tensor.defined()) {
               const GilReleased released;
               self.log(name, tensor);
               return;
             }
             const auto number = py::cast<double>(value);
             const GilReleased released;
             self.log(name, number);
           })
      .def("count", &PythonAgent::count, WithoutGil());
}

void define_tracing(py::module_& module, Class& agent) {
  py::class_<FiniteChecks>(module, "FiniteChecks")
      .def("add", [](FiniteChecks& self, const py::object& tensor) {
        const at::Tensor unpacked = tensor_or_none(tensor);
        const GilReleased released;
        return self.add(unpacked);
      });
  agent
      .def("trace_mode",
           [](const PythonAgent& self) {
             return kTraceModes[static_cast<std::size_t>(self.trace_mode())];
           })
      .def("finite_checks", &PythonAgent::finite_checks)
      .def("take_checks", &PythonAgent::take_checks, WithoutGil())
      .def(
          "trace_found",
          [](PythonAgent& self, int optimizer, std::string name, std::string type,
             const std::string& at, bool is_backward, std::int32_t micro_step) {
            return self.trace_found(optimizer, {std::move(name), std::move(type), is_backward, 0,
                                                traced_at(at), micro_step});
          },
          WithoutGil());
}

void define_ends(Class& agent) {
  agent.def("record", [](PythonAgent& self) { return without_gil(&PythonAgent::record, self); })
      .def("status",
           [](PythonAgent& self) {
             Status status;
             {
               const GilReleased released;
               status = self.status();
             }
             py::dict dict;
             dict["state"] = status.state;
             dict["reason"] = status.reason;
             dict["steps"] = status.steps;
             dict["nonfinite_steps"] = status.nonfinite_steps;
             dict["steps_per_second"] = status.steps_per_second;
             dict["latest"] = to_dict(status.latest);
             return dict;
           })
      .def("url", &PythonAgent::url, WithoutGil())
      .def("flush", &PythonAgent::flush, WithoutGil())
      .def("stop", &PythonAgent::stop, WithoutGil())
      .def("fail", &PythonAgent::fail, WithoutGil())
      .def("next_event",
           [](PythonAgent& self, double seconds) {
             std::pair<std::optional<Incident>, bool> event;
             {
               const GilReleased released;
               event = self.next_event(seconds);
             }
             py::object incident = py::none();
             if (event.first) incident = to_dict(*event.first);
             return py::make_tuple(incident, event.second);
           })
      .def("exchange_opens", &PythonAgent::exchange_opens, WithoutGil())
      .def("exchange_closes", &PythonAgent::exchange_closes, WithoutGil())
      .def("exchange_failed", &PythonAgent::exchange_failed, WithoutGil())
      .def("take_contributions", &PythonAgent::take_contributions, WithoutGil())
      .def("give_norm", &PythonAgent::give_norm, WithoutGil())
      .def("backward_failed", &PythonAgent::backward_failed, WithoutGil())
      .def("take_lines", &PythonAgent::take_lines, WithoutGil());
}

/// The same, as long as the process lasts.
const char* lasting(const std::string& name) {
  static std::mutex mutex;
  static auto& names = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

/// What is known here of host syncs, for the ledger of the process.
void define_ledger(Class& agent) {
  agent
      .def(
          "pass_over",
          [](PythonAgent& self, const std::string& directory) {
            self.with_ledger([&](agent::LedgerSeat& seat) { seat.ledger()->pass_over(directory); });
          },
          WithoutGil())
      .def(
          "outside_steps",
          [](PythonAgent& self, int delta) {
            self.with_ledger([&](agent::LedgerSeat& seat) { seat.outside_steps(delta); });
          },
          WithoutGil())
      .def(
          "profiler_begins",
          [](PythonAgent& self, const std::string& name) {
            self.with_ledger(
                [&](agent::LedgerSeat& seat) { seat.ledger()->profiler_begins(lasting(name)); });
          },
          WithoutGil())
      .def(
          "profiler_ended",
          [](PythonAgent& self) {
            self.with_ledger([](agent::LedgerSeat& seat) { seat.ledger()->profiler_ended(); });
          },
          WithoutGil());
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.attr("torch_version") = TORCH_VERSION;
  module.def("option_keys", [] {
    std::vector<std::string> keys;
    for (const agent::OptionSpec& option : agent::option_table()) keys.emplace_back(option.key);
    return keys;
  });

  // From now on the end of a run waits for a scrape, and Ctrl-C ends that wait and nothing else.
  module.def("note_process_ends", &agent::note_process_ends);
  // After the last run: the ledger of host syncs must not look at an interpreter that ends.
  module.def("end_host_syncs", &collectors::end_process_ledger, WithoutGil());

  Class agent(module, "Agent");
  agent
      .def(py::init<std::string, const std::vector<std::string>&, std::vector<std::string>>(),
           WithoutGil())
      .def("attach",
           [](PythonAgent& self, py::object names, const py::object& optimizer) {
             auto source = std::make_unique<PythonSource>(std::move(names), optimizer);
             const GilReleased released;
             return self.attach(std::move(source));
           })
      .def("detach", &PythonAgent::detach, WithoutGil());
  define_hooks(agent);
  define_values(agent);
  define_tracing(module, agent);
  define_ends(agent);
  define_ledger(agent);
}

}  // namespace gradvane::python
