#include "collectors/steps/slot_gatherer.hpp"

#include <algorithm>
#include <utility>

namespace gradvane::collectors {

using Found = DeviceFeed::Found;

/// Forgets the step before, if it was taken.
void SlotGatherer::Step::begin() {
  if (!taken) return;
  taken = false;
  arrived = 0;
  for (Part& part : parts) part.found = false;
  slots = {};
  newest.clear();
}

const StepSlots& SlotGatherer::finish(Step& step) {
  step.taken = true;
  const auto part = [&](SlotRole role) {
    const Part& found = step.parts[static_cast<std::size_t>(role)];
    return found.found ? std::span<const kernels::TensorStats>(found.stats)
                       : std::span<const kernels::TensorStats>();
  };
  step.slots.gradients = part(SlotRole::gradients);
  step.slots.weights = part(SlotRole::weights);
  step.slots.loss = part(SlotRole::loss);
  step.slots.user = part(SlotRole::user);
  for (const auto& [source, header] : step.newest) totals_[source] = header.totals;
  return step.slots;
}

bool SlotGatherer::ready(const StepFacts& facts) {
  step_.begin();
  bool all = true;
  std::uint64_t bit = 1;
  for (const SlotRead& read : facts.reads) {
    const std::uint64_t mine = std::exchange(bit, bit << 1);
    if ((step_.arrived & mine) != 0) continue;
    const Found found = find(read);
    if (found == Found::not_yet) {
      all = false;
      continue;
    }
    step_.arrived |= mine;
    if (found == Found::lost) {
      ++lost_reads_;
    } else if (read.is_on_host()) {
      add(read, host_header_, host_stats_, step_);
    } else {
      const DeviceFeed& from = *feed(read.source);
      add(read, from.header(), from.stats(), step_);
    }
  }
  return all;
}

bool SlotGatherer::found_nonfinite() const noexcept {
  return std::ranges::any_of(step_.parts, [](const Part& part) {
    return part.found && std::ranges::any_of(part.stats, [](const kernels::TensorStats& stats) {
             return stats.nonfinite() > 0;
           });
  });
}

const StepSlots& SlotGatherer::take(const StepFacts& facts) {
  (void)ready(facts);  // also if it was not called, because a device has stopped answering
  return finish(step_);
}

void SlotGatherer::note_captured(const StepFacts& facts) {
  bool any = false;
  for (const SlotRead& read : facts.reads) {
    if (read.is_on_host()) continue;
    any = true;
    if (DeviceFeed* from = feed(read.source)) from->note_captured(read.token);
  }
  if (any) captured_.push_back(facts);
}

std::optional<StepFacts> SlotGatherer::next_replay(Look look) {
  replay_.begin();
  for (const StepFacts& facts : captured_) {
    bool whole = true;
    for (const SlotRead& read : facts.reads) {
      if (read.is_on_host()) continue;  // it went into no graph
      DeviceFeed* from = feed(read.source);
      whole = whole && from != nullptr && from->has_replay(read.token, look == Look::further);
    }
    if (!whole) continue;
    for (const SlotRead& read : facts.reads) {
      if (read.is_on_host()) continue;
      const DeviceFeed::Replay replay = feed(read.source)->take_replay(read.token);
      add(read, replay.header, replay.stats, replay_);
    }
    return facts;
  }
  return std::nullopt;
}

const StepSlots& SlotGatherer::take_replay() { return finish(replay_); }

kernels::RunningTotals SlotGatherer::totals() const {
  kernels::RunningTotals totals;
  for (const auto& [source, of_source] : totals_) kernels::add_totals(totals, of_source);
  return totals;
}

DeviceFeed* SlotGatherer::feed(std::uint64_t source) {
  auto& feed = feeds_[source];
  if (feed == nullptr) {
    auto known = handoff_.source(source);
    if (known != nullptr) feed = std::make_unique<DeviceFeed>(std::move(known));
  }
  return feed.get();
}

std::int64_t SlotGatherer::take_lost_reads() noexcept { return std::exchange(lost_reads_, 0); }

/// With yes, the slot is in host_header_ and host_stats_, or in the source's feed.
Found SlotGatherer::find(const SlotRead& read) {
  if (read.is_on_host())
    return handoff_.read(read.token, host_header_, host_stats_) ? Found::yes : Found::lost;
  DeviceFeed* from = feed(read.source);
  return from == nullptr ? Found::lost : from->find(read.token);
}

/// Each entry is in the slot of its own source and `elsewhere`, or left out, in the others.
void SlotGatherer::add(const SlotRead& read, const kernels::SlotHeader& header, const Stats& stats,
                       Step& step) {
  auto& newest = step.newest[read.source];
  if (header.sequence >= newest.sequence) newest = header;
  Part& part = step.parts[static_cast<std::size_t>(read.role)];
  StepSlots& slots = step.slots;
  if (slots.plan == nullptr) slots.plan = handoff_.plan(header.plan_id);
  if (slots.plan == nullptr) ++lost_reads_;
  // The parameters may have been replaced within the step: entries of two plans do not mix. A loss is
  // one in any plan.
  const bool is_in_any_plan = read.role == SlotRole::loss || read.role == SlotRole::user;
  if (slots.plan == nullptr || (slots.plan->id != header.plan_id && !is_in_any_plan)) return;
  if (!part.found || part.stats.size() != stats.size()) {
    part.stats = stats;
    part.found = true;
    return;
  }
  for (std::size_t i = 0; i < stats.size(); ++i) {
    const EntryTag had = tag_of(part.stats[i]);
    if (had == EntryTag::elsewhere || tag_of(stats[i]) == EntryTag::read) part.stats[i] = stats[i];
  }
}

}  // namespace gradvane::collectors
