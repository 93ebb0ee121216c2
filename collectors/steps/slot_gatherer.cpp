#include "collectors/steps/slot_gatherer.hpp"

#include <utility>

namespace gradvane::collectors {

template <typename Visit>
void SlotGatherer::for_each_device_read(const StepFacts& facts, Visit visit) {
  std::uint32_t number = 0;
  for (const DeviceRead& read : facts.device_gradients) visit(read, gradients, number++);
  for (const DeviceRead& read : facts.device_weights) visit(read, weights, number++);
  visit(facts.device_loss, loss, number++);
  visit(facts.device_user, user, number++);
}

/// Forgets the step before, if it was taken.
void SlotGatherer::Step::begin() {
  if (!taken) return;
  taken = false;
  arrived = 0;
  for (Part& part : parts) part.found = false;
  slots = {};
  totals.clear();
}

const StepSlots& SlotGatherer::finish(Step& step) {
  step.taken = true;
  if (step.parts[gradients].found) step.slots.gradients = step.parts[gradients].stats;
  if (step.parts[loss].found) step.slots.loss = step.parts[loss].stats;
  if (step.parts[weights].found) step.slots.weights = step.parts[weights].stats;
  if (step.parts[user].found) step.slots.user = step.parts[user].stats;
  for (const auto& [source, totals] : step.totals) device_totals_[source] = totals;
  return step.slots;
}

bool SlotGatherer::ready(const StepFacts& facts) {
  step_.begin();
  bool all = true;
  for_each_device_read(facts, [&](const DeviceRead& read, Role role, std::uint32_t number) {
    const std::uint32_t bit = 1u << number;
    if (read.source == 0 || (step_.arrived & bit) != 0) return;
    DeviceFeed* from = feed(read.source);
    const auto found = from == nullptr ? DeviceFeed::Found::lost : from->find(read.token);
    if (found == DeviceFeed::Found::not_yet) {
      all = false;
      return;
    }
    step_.arrived |= bit;
    if (found == DeviceFeed::Found::lost) {
      ++lost_reads_;
      return;
    }
    step_.totals[read.source] = from->header().totals;
    add(from->stats(), from->header().plan_id, step_, role);
  });
  return all;
}

const StepSlots& SlotGatherer::take(const StepFacts& facts) {
  step_.begin();
  newest_host_ = 0;
  take_from_host(facts.grad_sequence, gradients);
  take_from_host(facts.loss_sequence, loss);
  take_from_host(facts.weight_sequence, weights);
  return finish(step_);
}

void SlotGatherer::note_captured(const StepFacts& facts) {
  bool any = false;
  for_each_device_read(facts, [&](const DeviceRead& read, Role, std::uint32_t) {
    if (read.source == 0) return;
    any = true;
    if (DeviceFeed* from = feed(read.source)) from->note_captured(read.token);
  });
  if (any) captured_.push_back(facts);
}

std::optional<StepFacts> SlotGatherer::next_replay(Look look) {
  replay_.begin();
  for (const StepFacts& facts : captured_) {
    bool whole = true;
    for_each_device_read(facts, [&](const DeviceRead& read, Role, std::uint32_t) {
      if (read.source == 0) return;
      DeviceFeed* from = feed(read.source);
      whole = whole && from != nullptr && from->has_replay(read.token, look == Look::further);
    });
    if (!whole) continue;
    for_each_device_read(facts, [&](const DeviceRead& read, Role role, std::uint32_t) {
      if (read.source == 0) return;
      DeviceFeed* from = feed(read.source);
      const DeviceFeed::Replay replay = from->take_replay(read.token);
      replay_.totals[read.source] = replay.header.totals;
      add(replay.stats, replay.header.plan_id, replay_, role);
    });
    return facts;
  }
  return std::nullopt;
}

const StepSlots& SlotGatherer::take_replay() { return finish(replay_); }

kernels::RunningTotals SlotGatherer::totals() const {
  kernels::RunningTotals totals = host_totals_;
  for (const auto& [source, of_source] : device_totals_) kernels::add_totals(totals, of_source);
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

void SlotGatherer::take_from_host(std::uint64_t sequence, Role role) {
  if (sequence == 0) return;
  if (!handoff_.read(sequence, host_header_, host_stats_)) {
    ++lost_reads_;
    return;
  }
  if (sequence > newest_host_) {
    newest_host_ = sequence;
    host_totals_ = host_header_.totals;
  }
  add(host_stats_, host_header_.plan_id, step_, role);
}

/// Each entry is in the slot of its own device and `elsewhere`, or left out, in the others.
void SlotGatherer::add(const Stats& stats, std::uint64_t plan_id, Step& step, Role role) {
  Part& part = step.parts[role];
  StepSlots& slots = step.slots;
  if (slots.plan == nullptr) slots.plan = handoff_.plan(plan_id);
  if (slots.plan == nullptr) ++lost_reads_;
  // The parameters may have been replaced within the step: entries of two plans do not mix. A loss is
  // one in any plan.
  if (slots.plan == nullptr || (slots.plan->id != plan_id && role != loss && role != user)) return;
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
