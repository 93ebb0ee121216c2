#include "agent/step/device_finding.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectors/steps/step_facts.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::agent {

using collectors::EntryTag;

void DeviceFinding::wait(OptimizerState& state) noexcept try {
  if (state.device_reads == 0 || state.devices_waited > 0 || state.facts.captured) return;
  std::uint64_t waited = 0;
  state.devices_waited = state.device_reads;
  if (!state.device_gradients.wait(waited) || !gatherer_.ready(state.facts)) return;
  const std::span<const kernels::TensorStats> entries = gatherer_.take(state.facts).gradients;
  const std::size_t params = state.stamps.size();
  if (entries.size() != params + 2) return;  // lost
  DeviceFound found;
  for (const kernels::TensorStats& entry : entries.first(params)) {
    if (collectors::tag_of(entry) != EntryTag::read) continue;
    found.gradients_are_bad |= entry.nonfinite() > 0;
    found.norm = std::hypot(found.norm, entry.norm());
  }
  const kernels::TensorStats& loss = entries[params];
  const kernels::TensorStats& scale = entries[params + 1];
  found.loss_is_bad = collectors::tag_of(loss) == EntryTag::read && loss.nonfinite() > 0;
  const bool is_scaled = state.facts.gradients_scaled && collectors::tag_of(scale) == EntryTag::read;
  if (is_scaled && scale.total() > 0) found.norm /= scale.total();
  state.found_on_devices = found;
} catch (...) {  // the step is not judged by its gradients
}

}  // namespace gradvane::agent
