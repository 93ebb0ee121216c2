#pragma once
// What a read of gradients on devices has found, on the host and before the update: for policies that judge the step.
#include <optional>

#include "agent/step/facts/step_clock.hpp"
#include "agent/step/optimizer_state.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/steps/slot_gatherer.hpp"

namespace gradvane::agent {

/// Training thread only.
class DeviceFinding {
 public:
  explicit DeviceFinding(collectors::Handoff& handoff) : handoff_(handoff), gatherer_(handoff) {}

  /// Waits for the read of the step in hand, once: one host sync for each device. Returns how long that took.
  /// `state.found_on_devices` stays absent where the stream captures a graph, where a device is lost or a slot was
  /// overwritten, and where there is no memory: then nothing is known of the step before its update.
  Clock::duration wait(OptimizerState& state) noexcept;

 private:
  void find(OptimizerState& state);

  collectors::Handoff& handoff_;
  std::optional<collectors::SlotGatherer>
      gatherer_;  ///< its own, and always there: the worker takes the same slots later
};

}  // namespace gradvane::agent
