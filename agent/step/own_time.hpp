#pragma once
// The time that Gradvane itself takes on the training thread.
#include "agent/step/step_recorder.hpp"

namespace gradvane::agent {

/// Counts the time from its construction to its end as the agent's own in the step in progress.
/// Both faces of the agent, C++ and Python, hold one wherever they call the recorder from a hook.
class [[nodiscard]] OwnTime {
 public:
  explicit OwnTime(StepRecorder& recorder) noexcept : recorder_(&recorder), began_(Clock::now()) {}
  ~OwnTime() {
    if (recorder_ != nullptr) (void)stop();
  }
  OwnTime(const OwnTime&) = delete;  // a scope
  OwnTime& operator=(const OwnTime&) = delete;

  [[nodiscard]] Clock::time_point began() const noexcept { return began_; }
  /// Ends it before the end of the scope, where other time begins at once. Returns the end. Call it
  /// once.
  Clock::time_point stop() noexcept {
    const Clock::time_point end = Clock::now();
    recorder_->add_agent_time(end - began_);
    recorder_ = nullptr;
    return end;
  }

 private:
  StepRecorder* recorder_;
  Clock::time_point began_;
};

}  // namespace gradvane::agent
