#include "agent/step/reads/weight_reader.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "agent/step/facts/device_sources.hpp"
#include "collectors/tensors/tensor_view.hpp"

namespace gradvane::agent {

using collectors::EntryTag;
using collectors::SlotRole;

bool WeightReader::is_due(const OptimizerState& state) const noexcept {
  const int every = handoff_.weight_every();
  if (every == 0) return false;
  const std::int64_t next = state.step + 1;
  return state.step == state.first_step || next % every == 0 ||
         state.weights_answered != handoff_.weights_asked();
}

void WeightReader::before_update(int optimizer) noexcept {
  OptimizerState& state = optimizers_.at(optimizer);
  const std::vector<collectors::Tensor>& params = optimizers_.watch().local_params(optimizer);
  state.reads_weights = is_due(state);
  state.weights_answered = handoff_.weights_asked();
  if (!state.reads_weights || options_.update_sample == 0) return;
  state.sample.keep(params);
  state.device_sample.keep(params);
}

void WeightReader::after_update(int optimizer) noexcept {
  OptimizerState& state = optimizers_.at(optimizer);
  if (!optimizers_.is_enabled() || !std::exchange(state.reads_weights, false)) return;
  const std::vector<collectors::Tensor>& params = optimizers_.watch().local_params(optimizer);
  if (state.weight_stats.size() != 2 * params.size()) return;
  bool on_host = false;
  if (options_.update_sample > 0) state.device_sample.difference(params);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const collectors::Tensor changes = state.device_sample.changes(i);
    if (changes.defined()) (void)state.device_weights.set(params.size() + i, changes);
    const bool elsewhere = state.device_weights.takes(params[i]);
    if (elsewhere) (void)state.device_weights.set(i, params[i]);
    state.weights.set(i, params[i], elsewhere ? EntryTag::elsewhere : EntryTag::read);
    on_host |= !elsewhere;
  }
  if (!state.weights.read()) return;
  const std::size_t device_reads =
      read_on_devices(state.device_weights, SlotRole::weights, state.facts, handoff_);
  state.facts.contiguous_copies += state.weights.copies() + state.device_weights.copies();
  if (!on_host && device_reads > 0) return;
  const auto stats = state.weights.stats();
  std::copy(stats.begin(), stats.end(), state.weight_stats.begin());
  if (options_.update_sample > 0)
    state.sample.difference(params, std::span(state.weight_stats).subspan(params.size()));
  state.facts.reads.set_on_host(SlotRole::weights,
                                handoff_.publish(optimizers_.watch().plan(optimizer)->id,
                                                 state.weight_sites, state.weight_stats));
}

}  // namespace gradvane::agent
