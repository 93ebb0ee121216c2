#pragma once
// The result of a step in immediate mode, on the thread that takes it.
#include <cstddef>

#include "agent/include/gradvane/agent.hpp"
#include "agent/step/facts/step_losses.hpp"
#include "agent/step/facts/user_metrics.hpp"
#include "agent/step/optimizer_state.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/steps/slot_gatherer.hpp"
#include "collectors/steps/step_builder.hpp"

namespace gradvane::agent {

/// Waits for what was read of a step, and makes its result as the worker would. Training thread
/// only.
class ImmediateResults {
 public:
  ImmediateResults(const Options& options, collectors::Handoff& handoff, StepLosses& losses,
                   UserMetrics& user);

  /// Devices that hold anything of the step.
  [[nodiscard]] static std::size_t devices_of(const OptimizerState& state) noexcept;
  /// Waits once per device. False where the step is being captured: it has no result.
  [[nodiscard]] bool wait(OptimizerState& state) noexcept;
  /// The result of a step that was waited for. Throws std::bad_alloc.
  [[nodiscard]] StepResult of(const collectors::StepFacts& facts);

 private:
  collectors::Handoff& handoff_;
  StepLosses& losses_;
  UserMetrics& user_;
  collectors::SlotGatherer gatherer_;
  collectors::StepBuilder builder_;
};

}  // namespace gradvane::agent
