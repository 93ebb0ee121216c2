// gradvane._native: the C++ agent, for the Python package alone. Its types are in _native.pyi.
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/process/process_signals.hpp"
#include "agent/public/option_table.hpp"
#include "python/native/gil_released.hpp"
#include "python/native/governor_calls.hpp"
#include "python/native/meeting_python.hpp"
#include "python/native/options_of_python.hpp"
#include "python/native/python_agent.hpp"
#include "python/native/record_classes.hpp"
#include "python/native/torch/live_objects_python.hpp"
#include "python/native/torch/torch_ops.hpp"
#include "python/text.hpp"
#include "record/names.hpp"

namespace gradvane::python {
namespace {

using WithoutGil = py::call_guard<GilReleased>;
using Class = py::class_<PythonAgent, PythonAgentPtr>;
using collectors::Tensor;
using namespace py::literals;  // "name"_a: an argument

constexpr std::array<const char*, 3> kTraceModes{"off", "next_step", "always"};

record::TracedAt traced_at(const std::string& name) {
  if (const auto at = record::named<record::TracedAt>(name)) return *at;
  throw std::invalid_argument("nothing is traced to " + name);
}

record::ReadAt read_at(const std::string& name) {
  if (const auto at = record::named<record::ReadAt>(name)) return *at;
  throw std::invalid_argument("there is no place called " + name);
}

Phase phase_named(const std::string& name) {
  if (const auto phase = record::named<record::Phase>(name))
    return static_cast<Phase>(record::index_of(*phase));
  throw std::invalid_argument("there is no phase called " + name);
}

/// The tensors among `items`, by name only. Null for what is none.
std::vector<const void*> identities(const py::list& items) {
  const TorchInterface& torch = torch_interface();
  std::vector<const void*> all;
  all.reserve(items.size());
  for (const py::handle item : items)
    all.push_back(torch.is_tensor(item.ptr()) ? torch.implementation(item.ptr()) : nullptr);
  return all;
}

py::list list_of(const std::vector<Tensor>& tensors) {
  py::list listed;
  for (const Tensor& tensor : tensors)
    listed.append(py::reinterpret_borrow<py::object>(tensor.object()));
  return listed;
}

void define_hooks(Class& agent) {
  agent.def("set_several_train", &PythonAgent::set_several_train, "several"_a)
      .def("before_backward", &PythonAgent::before_backward, "within_step"_a)
      .def(
          "after_backward",
          [](PythonAgent& self, const py::object& loss) {
            const Tensor tensor = tensor_of(loss);
            self.after_backward(tensor);
          },
          "loss"_a)
      .def(
          "read",
          [](PythonAgent& self, int optimizer, const std::string& where, const py::object& scale,
             bool is_scaled) {
            const Tensor tensor = tensor_of(scale);
            return self.read(optimizer, read_at(where), tensor, is_scaled);
          },
          "optimizer"_a, "where"_a, "scale"_a, "is_scaled"_a)
      .def("unused", &PythonAgent::unused, "optimizers"_a)
      .def(
          "discard",
          [](PythonAgent& self, int optimizer, const py::object& scale, bool is_scaled) {
            const Tensor tensor = tensor_of(scale);
            self.discard(optimizer, tensor, is_scaled);
          },
          "optimizer"_a, "scale"_a, "is_scaled"_a)
      .def("note_clip", &PythonAgent::note_clip, "optimizers"_a, "max_norm"_a)
      .def(
          "step_begins",
          [](PythonAgent& self, int optimizer, bool has_closure, bool heeds_device) {
            return static_cast<int>(self.step_begins(optimizer, has_closure, heeds_device));
          },
          "optimizer"_a, "has_closure"_a, "heeds_device"_a)
      .def(
          "found_on_devices",
          [](PythonAgent& self, int optimizer) {
            return list_of(self.found_on_devices(optimizer));
          },
          "optimizer"_a)
      .def("heeds_devices", &PythonAgent::heeds_devices, "optimizer"_a)
      .def(
          "found_for_scaler",
          [](PythonAgent& self, int optimizer) -> py::object {
            const auto found = self.found_for_scaler(optimizer);
            if (!found) return py::none();
            return py::make_tuple(found->on_host, list_of(found->on_devices));
          },
          "optimizer"_a)
      .def("note_use", &PythonAgent::note_use, "optimizer"_a)
      .def(
          "step_ends",
          [](PythonAgent& self, int optimizer, bool has_closure, bool is_left_out) {
            return static_cast<int>(self.step_ends(optimizer, has_closure, is_left_out));
          },
          "optimizer"_a, "has_closure"_a, "is_left_out"_a)
      .def("evaluated", &PythonAgent::evaluated, "optimizer"_a)
      .def("step_failed", &PythonAgent::step_failed, "optimizer"_a)
      .def(
          "phase_begins",
          [](PythonAgent& self, const std::string& phase) {
            return self.phase_begins(phase_named(phase));
          },
          "phase"_a)
      .def("phase_ends", &PythonAgent::phase_ends, "span"_a)
      .def("outside_steps", &PythonAgent::outside_steps, "delta"_a)
      .def(
          "step_skipped",
          [](PythonAgent& self, int optimizer) {
            return static_cast<int>(self.step_skipped(optimizer));
          },
          "optimizer"_a)
      .def("loop_read", &PythonAgent::loop_read, "optimizer"_a)
      .def("loop_step_ends", &PythonAgent::loop_step_ends, "optimizer"_a)
      .def("parts_begin", &PythonAgent::parts_begin, "optimizer"_a)
      .def(
          "read_parts",
          [](PythonAgent& self, int optimizer, const py::list& params) {
            std::vector<Tensor> tensors;
            for (const py::handle param : params)
              if (torch_interface().is_tensor(param.ptr()))
                tensors.push_back(Tensor::of(param.ptr()));
            self.read_parts(optimizer, tensors);
          },
          "optimizer"_a, "params"_a)
      .def(
          "parts_end",
          [](PythonAgent& self, int optimizer, const py::object& loss) {
            const Tensor tensor = tensor_of(loss);
            self.parts_end(optimizer, tensor);
          },
          "optimizer"_a, "loss"_a)
      .def(
          "owners",
          [](PythonAgent& self, const py::list& params) {
            const ParameterOwners::Owners owners = self.owners(identities(params));
            return py::make_tuple(owners.optimizers, owners.is_whole);
          },
          "params"_a)
      .def(
          "owners_of_gradients",
          [](PythonAgent& self, const py::list& gradients) {
            return self.owners_of_gradients(identities(gradients));
          },
          "gradients"_a);
}

void define_values(Class& agent) {
  agent
      .def(
          "grad_norm",
          [](PythonAgent& self, int optimizer) { return object_of(self.grad_norm(optimizer)); },
          "optimizer"_a)
      .def(
          "clip_grad_norm",
          [](PythonAgent& self, int optimizer, double max_norm, bool just_read) {
            return object_of(self.clip_grad_norm(optimizer, max_norm, just_read));
          },
          "optimizer"_a, "max_norm"_a, "just_read"_a)
      .def("is_sharded", &PythonAgent::is_sharded, "optimizer"_a)
      .def(
          "take_loss",
          [](PythonAgent& self, const py::object& loss) {
            const Tensor tensor = tensor_of(loss);
            self.take_loss(tensor);
          },
          "loss"_a)
      .def(
          "log",
          [](PythonAgent& self, const std::string& name, const py::object& value) {
            const Tensor tensor = tensor_of(value);
            return tensor.defined() ? self.log(name, tensor)
                                    : self.log(name, py::cast<double>(value));
          },
          "name"_a, "value"_a)
      .def("count", &PythonAgent::count, "tokens"_a, "samples"_a);
}

void define_tracing(Class& agent) {
  agent
      .def("trace_mode",
           [](const PythonAgent& self) {
             return kTraceModes[static_cast<std::size_t>(self.trace_mode())];
           })
      .def("own_calls", &PythonAgent::own_calls, "delta"_a)
      .def("note_checks", &PythonAgent::note_checks, "host_syncs"_a, "seconds"_a)
      .def(
          "trace_found",
          [](PythonAgent& self, int optimizer, std::string name, std::string type,
             const std::string& at, bool is_backward, std::int32_t micro_step) {
            return self.trace_found(optimizer, {std::move(name), std::move(type), is_backward, 0,
                                                traced_at(at), micro_step});
          },
          "optimizer"_a, "name"_a, "type"_a, "at"_a, "is_backward"_a, "micro_step"_a);
}

void define_ends(Class& agent) {
  agent.def("record", &PythonAgent::record, WithoutGil())
      .def("status", &PythonAgent::status, WithoutGil())
      .def("url", &PythonAgent::url, WithoutGil())
      .def("run", &PythonAgent::run, WithoutGil())
      .def("is_renamed", &PythonAgent::is_renamed, WithoutGil())
      .def("local_rank", &PythonAgent::local_rank, WithoutGil())
      .def("flush", &PythonAgent::flush, WithoutGil(), "seconds"_a)
      .def("stop", &PythonAgent::stop, WithoutGil(), "lingers"_a)
      .def("fail", &PythonAgent::fail, WithoutGil(), "reason"_a, "lingers"_a)
      .def("next_event", &PythonAgent::next_event, WithoutGil(), "seconds"_a)
      .def("exchange_opens", &PythonAgent::exchange_opens, WithoutGil())
      .def("exchange_closes", &PythonAgent::exchange_closes, WithoutGil())
      .def("exchange_failed", &PythonAgent::exchange_failed, WithoutGil())
      .def("take_contributions", &PythonAgent::take_contributions, WithoutGil(), "seconds"_a)
      .def("give_norm", &PythonAgent::give_norm, WithoutGil(), "step"_a, "optimizer"_a, "norm"_a)
      .def("backward_failed", &PythonAgent::backward_failed)
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
          WithoutGil(), "directory"_a)
      .def(
          "profiler_begins",
          [](PythonAgent& self, const std::string& name) {
            self.with_ledger(
                [&](agent::LedgerSeat& seat) { seat.ledger()->profiler_begins(lasting(name)); });
          },
          WithoutGil(), "name"_a)
      .def(
          "profiler_ended",
          [](PythonAgent& self) {
            self.with_ledger([](agent::LedgerSeat& seat) { seat.ledger()->profiler_ended(); });
          },
          WithoutGil());
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  raise_any_text();
  find_torch_interface();
  module.def("option_keys", [] {
    std::vector<std::string> keys;
    for (const agent::OptionSpec& option : agent::option_table()) keys.emplace_back(option.key);
    return keys;
  });

  module.def("functions_of_cpp", &functions_of_cpp);
  module.def("do_without_functions_of_cpp", &do_without_functions_of_cpp);

  // From now on the end of a run waits for a scrape, and Ctrl-C ends that wait and nothing else.
  module.def("note_process_ends", &agent::note_process_ends);
  module.def("lacks_run_id", &lacks_run_id, "code"_a, "command_line"_a);
  // Of a process without an agent, whose syncs an injected library may count.
  module.def(
      "profiler_begins",
      [](const std::string& name) {
        if (!collectors::has_injected_library() || !collectors::ledger_is_shared()) return false;
        collectors::process_ledger().profiler_begins(lasting(name));
        return true;
      },
      WithoutGil(), "name"_a);
  module.def("profiler_ended", [] { collectors::process_ledger().profiler_ended(); }, WithoutGil());
  // After the last run: the ledger of host syncs must not look at an interpreter that ends.
  module.def("end_host_syncs", &collectors::end_process_ledger, WithoutGil());

  define_records(module);
  define_live_objects(module);
  define_meeting(module);
  const py::class_<PythonAgent::PhaseSpan> span(module, "PhaseSpan");
  Class agent(module, "Agent");
  agent
      .def(py::init<std::string, const std::vector<std::string>&, std::vector<std::string>>(),
           WithoutGil(), "default_run"_a, "code"_a, "command_line"_a)
      .def(
          "attach",
          [](PythonAgent& self, py::object names, const py::object& optimizer) {
            return self.attach(std::make_unique<PythonSource>(std::move(names), optimizer));
          },
          "names"_a, "optimizer"_a)
      .def("detach", &PythonAgent::detach, "optimizer"_a);
  define_hooks(agent);
  define_values(agent);
  define_tracing(agent);
  define_governor(agent);
  define_ends(agent);
  define_ledger(agent);
}

}  // namespace gradvane::python
