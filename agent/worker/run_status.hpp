#pragma once
// The state of a run, and the numbers that Agent::status() returns.
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/outlets.hpp"
#include "agent/worker/pauses.hpp"
#include "detectors/stall.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::agent {

/// starting -> running at the first step; running <-> stalled; finished or failed at the end.
/// Threading: status() from any thread; all else from the worker's.
class RunStatus {
 public:
  /// Without a step for as long as StallLimit allows, `pauses` not counted, the run counts as stalled.
  /// @param stall_seconds  the least; 0: never
  RunStatus(Outlets& outlets, double stall_seconds, const Pauses& pauses);

  [[nodiscard]] Status status() const;

  [[nodiscard]] record::RunState state() const noexcept { return state_; }
  /// The outlets get the state too.
  void set_state(record::RunState state, std::string_view reason);
  /// A step has come: the run is running, unless it has ended.
  void note_arrival(std::chrono::steady_clock::time_point now);
  /// Adds the step to the numbers.
  void note(const record::StepRecord& record, const record::ModelInfo& model);
  /// As the constructor's.
  void set_stall_seconds(double seconds) noexcept { stall_limit_.set_least(seconds); }
  /// Called about once a second: a run without steps becomes stalled.
  void look(std::chrono::steady_clock::time_point now);

  /// Seconds of pauses since the latest step.
  [[nodiscard]] double paused_seconds(std::chrono::steady_clock::time_point now) const {
    return pauses_.seconds(now) - paused_before_;
  }

  /// `why` becomes the reason of each state from now on that has no other reason.
  void note_device_failure(std::string why);
  /// Empty while none has failed.
  [[nodiscard]] const std::string& device_failure() const noexcept { return device_failure_; }
  /// The moving average over steps, in seconds; 0 before the first step that has a time.
  [[nodiscard]] double mean_step_seconds() const noexcept { return mean_step_seconds_; }

 private:
  Outlets& outlets_;
  detectors::StallLimit stall_limit_;
  const Pauses& pauses_;
  record::RunState state_ = record::RunState::starting;
  std::chrono::steady_clock::time_point last_step_;
  double paused_before_ = 0;  ///< seconds of pauses up to the latest step
  std::string device_failure_;
  double mean_step_seconds_ = 0;

  mutable std::mutex mutex_;  ///< guards what follows
  Status status_;
};

}  // namespace gradvane::agent
