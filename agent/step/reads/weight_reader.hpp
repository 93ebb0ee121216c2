#pragma once
// Reads an optimizer's weights around their update, in every Nth step (weight_every).
#include "agent/step/attached_optimizers.hpp"

namespace gradvane::agent {

/// Training thread only; never waits.
class WeightReader {
 public:
  WeightReader(const Options& options, AttachedOptimizers& optimizers, collectors::Handoff& handoff)
      : options_(options), optimizers_(optimizers), handoff_(handoff) {}

  /// Whether the step in progress reads them: by Options::weight_every, or since the worker
  /// requests it.
  [[nodiscard]] bool is_due(const OptimizerState& state) const noexcept;
  /// Keeps samples for the update ratio, if weights are read in this step.
  void before_update(int optimizer) noexcept;
  /// Reads the weights, and how far the samples have moved.
  void after_update(int optimizer) noexcept;

 private:
  const Options& options_;
  AttachedOptimizers& optimizers_;
  collectors::Handoff& handoff_;
};

}  // namespace gradvane::agent
