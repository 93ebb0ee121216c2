#pragma once
// Where the time of a step goes: the phases of the loop, and the agent's own calls.
#include <array>
#include <chrono>
#include <optional>

#include "agent/include/gradvane/agent.hpp"
#include "agent/step/facts/unbooked_time.hpp"
#include "collectors/steps/step_facts.hpp"

namespace gradvane::agent {

using Clock = std::chrono::steady_clock;

/// Times of the step in progress. Training thread only.
class StepClock {
 public:
  void add_phase(Phase phase, Clock::duration time) noexcept;
  /// Of the calling thread: it is no phase's time.
  void add_agent_time(Clock::duration time) noexcept {
    agent_time_ += time;
    UnbookedTime::book(time);
  }
  /// Of the calling thread, in a phase or the agent's own time.
  void add_rank_wait(Clock::duration time) noexcept;
  /// Ends the step: writes its times to `facts`, in seconds. The step began where the one before
  /// ended.
  void end_step(collectors::StepFacts& facts) noexcept;
  /// Forgets the times of the step in progress.
  void clear() noexcept;

 private:
  std::array<Clock::duration, record::kPhases> phases_{};
  Clock::duration agent_time_{};
  std::optional<Clock::duration> rank_wait_;
  std::optional<Clock::time_point> last_end_;
};

}  // namespace gradvane::agent
