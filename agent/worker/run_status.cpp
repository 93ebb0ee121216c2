#include "agent/worker/run_status.hpp"

#include <utility>

#include "agent/public/step_result.hpp"
#include "exporters/text/text_escape.hpp"
#include "record/names.hpp"

namespace gradvane::agent {

using record::RunState;

RunStatus::RunStatus(Outlets& outlets, double stall_seconds, const Pauses& pauses)
    : outlets_(outlets),
      stall_limit_(stall_seconds),
      pauses_(pauses),
      last_step_(std::chrono::steady_clock::now()) {
  status_.state = name_of(RunState::starting);
}

Status RunStatus::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void RunStatus::set_state(RunState state, std::string_view reason) {
  state_ = state;
  const std::string why = exporters::brief(reason);  // of an exception: of any length
  outlets_.set_run_state(state, why);
  const std::lock_guard lock(mutex_);
  status_.state = name_of(state);
  status_.reason = why;
}

void RunStatus::note_arrival(std::chrono::steady_clock::time_point now) {
  // A run that ends by a signal stays ended, whatever is still trained.
  if (state_ == RunState::starting || state_ == RunState::stalled)
    set_state(RunState::running, device_failure_);
  last_step_ = now;
  paused_before_ = pauses_.seconds(now);
}

void RunStatus::note(const record::StepRecord& record, const record::ModelInfo& model) {
  StepResult latest = step_result(record, model);
  stall_limit_.add(record.step_seconds);
  if (record.step_seconds) {
    // The first sample starts it: an average that starts at 0 would read low for long.
    mean_step_seconds_ = mean_step_seconds_ == 0
                             ? *record.step_seconds
                             : 0.9 * mean_step_seconds_ + 0.1 * *record.step_seconds;
  }
  const bool bad = record.has_nonfinite(record::Site::loss) ||
                   (record.has_nonfinite(record::Site::grad) && !record.is_handled_overflow());
  const std::lock_guard lock(mutex_);
  status_.steps += (record.is_step() ? 1 : 0) + record.dropped_before;
  status_.nonfinite_steps += bad ? 1 : 0;
  status_.steps_per_second = mean_step_seconds_ > 0 ? 1 / mean_step_seconds_ : 0;
  status_.latest = std::move(latest);
}

void RunStatus::look(std::chrono::steady_clock::time_point now) {
  const std::chrono::duration<double> since = now - last_step_;
  if (state_ == RunState::running && stall_limit_.is_over(since.count() - paused_seconds(now)))
    set_state(RunState::stalled,
              "no step for " + std::to_string(static_cast<int>(since.count())) + " seconds");
}

void RunStatus::note_device_failure(std::string why) {
  device_failure_ = std::move(why);
  set_state(state_, device_failure_);
}

}  // namespace gradvane::agent
