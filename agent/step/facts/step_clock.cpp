#include "agent/step/facts/step_clock.hpp"

#include <algorithm>
#include <cstddef>

namespace gradvane::agent {
namespace {

double seconds(Clock::duration time) noexcept {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void StepClock::add_phase(Phase phase, Clock::duration time) noexcept {
  phases_[static_cast<std::size_t>(phase)] += time;
}

void StepClock::add_rank_wait(Clock::duration time) noexcept {
  rank_wait_ = rank_wait_.value_or(Clock::duration::zero()) + time;
}

void StepClock::end_step(collectors::StepFacts& facts) noexcept {
  const Clock::time_point now = Clock::now();
  facts.monotonic = seconds(now.time_since_epoch());
  facts.agent_seconds = seconds(agent_time_);
  if (rank_wait_) facts.rank_wait_seconds = seconds(*rank_wait_);
  Clock::duration known = agent_time_;
  for (std::size_t p = 0; p < phases_.size(); ++p) {
    known += phases_[p];
    facts.phase_seconds[p] = seconds(phases_[p]);
  }
  if (last_end_) {
    facts.step_seconds = seconds(now - *last_end_);
    const auto other = static_cast<std::size_t>(record::Phase::other);
    facts.phase_seconds[other] += std::max(0.0, seconds(now - *last_end_ - known));
  }
  last_end_ = now;
}

void StepClock::clear() noexcept {
  phases_ = {};
  agent_time_ = {};
  rank_wait_.reset();
}

}  // namespace gradvane::agent
