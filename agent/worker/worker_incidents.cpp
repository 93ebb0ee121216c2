// Worker's part that passes incidents on.
#include <utility>

#include "agent/public/step_result.hpp"
#include "agent/worker/process_signals.hpp"
#include "agent/worker/worker.hpp"

namespace gradvane::agent {

void Worker::trace_found(record::TracedModule module) noexcept try {
  if (is_child()) return;
  const std::lock_guard lock(mutex_);
  traced_.push_back(std::move(module));
} catch (...) {  // no memory: the incident does without
}

void Worker::judge_traced() {
  std::vector<record::TracedModule> traced;
  {
    const std::lock_guard lock(mutex_);
    traced.swap(traced_);
  }
  for (const record::TracedModule& module : traced) judge_.trace_found(module);
}

void Worker::report(const record::Incident& incident) {
  if (incident.closed_at) {
    open_incidents_.erase(incident.id);
  } else if (open_incidents_.insert(incident.id).second) {
    last_opened_ = std::chrono::steady_clock::now();
    // Whether a checkpoint is of use depends on them, and their turn may be far off.
    if (!incident.order.empty()) handoff_.ask_for_weights();
  }
  (void)exporters_.export_incident(incident);
  if (const auto line = lines_.next(incident)) say(*line);
  say_where_recorded();
  tell(incident);
}

/// A file is written when an incident opens; a later incident may be in the same one.
void Worker::say_where_recorded() noexcept try {
  if (recorder_ == nullptr || recorder_->last_file() == told_recording_) return;
  told_recording_ = recorder_->last_file();
  say("recording: " + told_recording_.string());
} catch (...) {  // no memory for a line: the file is there all the same
}

void Worker::tell(const record::Incident& incident) noexcept {
  if (!options_.on_incident || is_left_behind()) return;
  try {
    options_.on_incident(incident_of(incident));
  } catch (...) {  // as with the log
  }
}

/// Who looks at the page sees how long it has lasted; nobody is told of it again.
void Worker::show_open_incidents() {
  judge_.tell_open(
      [this](const record::Incident& incident) { (void)board_->export_incident(incident); });
}

/// Said once, until it is another one or there was none in between.
void Worker::note_alert_error() {
  if (alerts_ == nullptr) return;
  std::string error = alerts_->last_error();
  if (!error.empty() && error != alert_error_) say("alertmanager_url: " + error);
  alert_error_ = std::move(error);
}

void Worker::record_on_request() {
  const int requests = recording_requests();
  if (recorder_ == nullptr || requests == std::exchange(recording_requests_, requests)) return;
  const bool ok = recorder_->write_now("signal") == exporters::ExportResult::ok;
  if (!ok) return say("no recording could be written");
  told_recording_
      .clear();  // whoever asked is answered, also where an open incident's file was extended
  say_where_recorded();
}

}  // namespace gradvane::agent
