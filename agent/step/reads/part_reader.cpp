#include "agent/step/reads/part_reader.hpp"

#include <thread>

namespace gradvane::agent {

using collectors::EntryTag;

PartReader::PartReader(AttachedOptimizers& optimizers, collectors::Handoff& handoff)
    : optimizers_(optimizers), handoff_(handoff) {
  reader_.resize(1);
}

void PartReader::read(int optimizer, const collectors::Tensor& param) noexcept try {
  if (!optimizers_.is_enabled() || optimizers_.at(optimizer).has_read) return;
  optimizers_.catch_up();
  OptimizerState& state = optimizers_.at(optimizer);
  const std::vector<collectors::Tensor>& params = optimizers_.watch().params(optimizer);
  if (state.entries.empty())
    for (std::size_t i = 0; i < params.size(); ++i)
      state.entries.emplace(collectors::identity_of(params[i]), i);
  if (state.parts.empty())
    state.parts.assign(params.size() + 2, collectors::not_read(EntryTag::missing));
  const auto entry = state.entries.find(collectors::identity_of(param));
  const collectors::Tensor gradient = collectors::gradient_of(param);
  if (entry == state.entries.end() || !gradient.defined()) return;
  reader_.set(0, gradient, EntryTag::read);
  if (reader_.read()) state.parts[entry->second] = reader_.stats().front();
} catch (...) {  // no memory: what was not read is missing
}

void PartReader::publish(int optimizer) noexcept {
  OptimizerState& state = optimizers_.at(optimizer);
  const std::vector<collectors::Tensor>& params = optimizers_.watch().params(optimizer);
  if (!optimizers_.is_enabled() || state.parts.size() != params.size() + 2) return;
  for (std::size_t i = 0; i + 2 < state.parts.size(); ++i)
    if (!collectors::requires_grad(params[i]))
      state.parts[i] = collectors::not_read(EntryTag::frozen);
  state.has_read = true;
  state.reader = std::this_thread::get_id();
  state.facts.read_at = record::ReadAt::optimizer;
  state.facts.reads.set_on_host(
      collectors::SlotRole::gradients,
      handoff_.publish(optimizers_.watch().plan(optimizer)->id, state.gradient_sites, state.parts));
  state.parts.clear();
}

}  // namespace gradvane::agent
