#include "agent/worker/incidents.hpp"

#include <utility>

#include "agent/public/detector_settings.hpp"
#include "record/clocks.hpp"

namespace gradvane::agent {

Incidents::Incidents(const Options& options, std::int32_t rank, collectors::Handoff& handoff,
                     Outlets& outlets, Recordings& recordings, UserCallbacks& callbacks)
    : handoff_(handoff),
      outlets_(outlets),
      recordings_(recordings),
      callbacks_(callbacks),
      judge_(rank, detector_settings(options),
             [this](const record::Incident& incident) { report(incident); }) {}

void Incidents::trace_found(record::TracedModule module) noexcept try {
  const std::lock_guard lock(mutex_);
  traced_.push_back(std::move(module));
} catch (...) {  // no memory: the incident does without
}

void Incidents::judge(const record::StepRecord& record, const record::StepDetail& detail,
                      const record::ModelInfo& model) {
  judge_.observe(record, detail, model,
                 {record.run_step, record::unix_time(), record::monotonic_time()});
}

void Incidents::judge_traced() {
  std::vector<record::TracedModule> traced;
  {
    const std::lock_guard lock(mutex_);
    traced.swap(traced_);
  }
  for (const record::TracedModule& module : traced) judge_.trace_found(module);
}

void Incidents::judge_time(double paused_seconds) {
  judge_.tick({0, record::unix_time(), record::monotonic_time()}, paused_seconds);
}

void Incidents::report(const record::Incident& incident) {
  if (incident.closed_at) {
    open_.erase(incident.id);
  } else if (open_.insert(incident.id).second) {
    last_opened_ = Clock::now();
    // Whether a checkpoint is of use depends on them, and their turn may be far off.
    if (!incident.order.empty()) handoff_.ask_for_weights();
  }
  (void)outlets_.exporters().export_incident(incident);
  if (const auto line = lines_.next(incident)) callbacks_.log(*line);
  recordings_.log_new_file();
  callbacks_.report(incident);
}

void Incidents::show_open() {
  judge_.tell_open([this](const record::Incident& incident) {
    (void)outlets_.board().export_incident(incident);
  });
}

void Incidents::export_open() {
  judge_.tell_open([this](const record::Incident& incident) {
    (void)outlets_.exporters().export_incident(incident);
  });
}

}  // namespace gradvane::agent
