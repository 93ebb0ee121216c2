#include "agent/step/reads/device_finding.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectors/steps/step_facts.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::agent {

using collectors::EntryTag;

Clock::duration DeviceFinding::wait(OptimizerState& state) noexcept {
  if (state.device_reads == 0 || state.devices_waited > 0 || state.facts.captured) return {};
  const Clock::time_point began = Clock::now();
  std::uint64_t waited = 0;
  state.devices_waited = state.device_reads;
  const bool has_arrived = state.device_gradients.wait(waited);
  const Clock::duration took = Clock::now() - began;
  try {
    if (has_arrived) find(state);
  } catch (...) {
    // The step is not judged by its gradients, and the next one not by what this one left behind.
    gatherer_.emplace(handoff_);
  }
  return took;
}

void DeviceFinding::find(OptimizerState& state) {
  const collectors::StepSlots slots = gatherer_->take(state.facts);
  const std::span<const kernels::TensorStats> entries = slots.gradients;
  const std::size_t params = state.stamps.size();
  if (gatherer_->take_lost_reads() > 0 || entries.size() != params + 2) return;
  DeviceFound found;
  for (const kernels::TensorStats& entry : entries.first(params))
    if (collectors::tag_of(entry) == EntryTag::elsewhere)
      return;  // another device's slot is not there
  found.gradients_are_bad = any_nonfinite(entries.first(params));
  found.norm = norm_of(entries.first(params), slots.plan->shards);
  const kernels::TensorStats& loss = entries[params];
  const kernels::TensorStats& scale = entries[params + 1];
  found.loss_is_bad = collectors::tag_of(loss) == EntryTag::read && loss.nonfinite() > 0;
  const bool is_scaled =
      state.facts.gradients_scaled && collectors::tag_of(scale) == EntryTag::read;
  if (is_scaled && scale.total() > 0) found.norm /= scale.total();
  state.found_on_devices = found;
}

}  // namespace gradvane::agent
