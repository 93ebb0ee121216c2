#pragma once
// What a read of gradients on devices has found, on the host and before the update: for policies that judge the step.
#include "agent/step/optimizer_state.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/steps/slot_gatherer.hpp"

namespace gradvane::agent {

/// Training thread only.
class DeviceFinding {
 public:
  explicit DeviceFinding(collectors::Handoff& handoff) : gatherer_(handoff) {}

  /// Waits for the read of the step in hand, once: one host sync for each device. `state.found_on_devices` stays absent
  /// where the stream captures a graph, where the device is lost or the slot was overwritten, and where there is no
  /// memory: then nothing is known of the step before its update.
  void wait(OptimizerState& state) noexcept;

 private:
  collectors::SlotGatherer gatherer_;  ///< its own: the worker takes the same slots later
};

}  // namespace gradvane::agent
