#include "agent/step/reads/immediate_results.hpp"

#include <algorithm>

#include "agent/public/step_result.hpp"
#include "agent/step/facts/device_sources.hpp"

namespace gradvane::agent {

using collectors::SlotRole;

ImmediateResults::ImmediateResults(const Options& options, collectors::Handoff& handoff,
                                   StepLosses& losses, UserMetrics& user)
    : handoff_(handoff),
      losses_(losses),
      user_(user),
      gatherer_(handoff),
      builder_({options.vanishing_threshold, options.exploding_threshold}) {}

std::size_t ImmediateResults::devices_of(const OptimizerState& state) noexcept {
  const collectors::SlotReads& reads = state.facts.reads;
  const bool has_scalars =
      reads.has_on_devices(SlotRole::loss) || reads.has_on_devices(SlotRole::user);
  return std::max<std::size_t>(state.device_reads, has_scalars ? 1 : 0);
}

bool ImmediateResults::wait(OptimizerState& state) noexcept {
  bool done = !state.facts.captured;
  std::uint64_t waited = 0;
  // The last to be enqueued comes first.
  const collectors::SlotReads& reads = state.facts.reads;
  if (reads.has_on_devices(SlotRole::user)) done = done && user_.wait(waited);
  if (reads.has_on_devices(SlotRole::loss)) done = done && losses_.wait(waited);
  if (reads.has_on_devices(SlotRole::weights)) done = done && state.device_weights.wait(waited);
  if (state.device_reads > 0) done = done && state.device_gradients.wait(waited);
  user_.pass_on_sources();
  losses_.pass_on_sources();
  pass_on_sources(state.device_weights, handoff_);
  pass_on_sources(state.device_gradients, handoff_);
  return done;
}

StepResult ImmediateResults::of(const collectors::StepFacts& facts) {
  (void)gatherer_.ready(facts);
  const record::StepRecord& record = builder_.build(facts, gatherer_.take(facts), {});
  if (builder_.model() == nullptr) return {};
  return step_result(record, *builder_.model());
}

}  // namespace gradvane::agent
