#pragma once
// What the loop counts during a step: micro-steps, tokens and samples.
#include <cstdint>
#include <optional>

#include "collectors/steps/step_facts.hpp"

namespace gradvane::agent {

/// Counts of the step in progress. Training thread only.
class StepCounts {
 public:
  void add_micro_step() noexcept { ++micro_steps_; }
  void add_tokens(std::int64_t tokens) noexcept { tokens_ = tokens_.value_or(0) + tokens; }
  void add_samples(std::int64_t samples) noexcept { samples_ = samples_.value_or(0) + samples; }
  /// @param backwards  backward passes that were seen; 0: the loop reports its micro-steps itself
  void write_to(collectors::StepFacts& facts, std::int32_t backwards) const noexcept {
    facts.micro_steps = backwards > 0 ? backwards : micro_steps_ + 1;
    if (tokens_) facts.tokens = *tokens_;
    if (samples_) facts.samples = *samples_;
  }
  void clear() noexcept { *this = {}; }

 private:
  std::int32_t micro_steps_ = 0;
  std::optional<std::int64_t> tokens_;  ///< absent: the loop reports none
  std::optional<std::int64_t> samples_;
};

}  // namespace gradvane::agent
