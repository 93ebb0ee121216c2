#include "agent/slot_gatherer.hpp"

namespace gradvane::agent {

using collectors::DeviceRead;
using collectors::EntryTag;
using collectors::StepFacts;

template <typename Visit>
void SlotGatherer::for_each_device_read(const StepFacts& facts, Visit visit) {
  std::uint32_t number = 0;
  for (const DeviceRead& read : facts.device_gradients) visit(read, kGradients, number++);
  for (const DeviceRead& read : facts.device_weights) visit(read, kWeights, number++);
  visit(facts.device_loss, kLoss, number++);
}

/// Forgets the step before, if it was taken.
void SlotGatherer::begin() {
  if (!taken_) return;
  taken_ = false;
  arrived_ = 0;
  for (Part& part : parts_) part.found = false;
  slots_ = {};
}

bool SlotGatherer::ready(const StepFacts& facts) {
  begin();
  bool all = true;
  for_each_device_read(facts, [&](const DeviceRead& read, Role role, std::uint32_t number) {
    const std::uint32_t bit = 1u << number;
    if (read.source == 0 || (arrived_ & bit) != 0) return;
    DeviceFeed* from = feed(read.source);
    const auto found = from == nullptr ? DeviceFeed::Found::lost : from->find(read.token);
    if (found == DeviceFeed::Found::not_yet) {
      all = false;
      return;
    }
    arrived_ |= bit;
    if (found == DeviceFeed::Found::lost) return;
    arrived_totals_[read.source] = from->totals();
    add(from->stats(), from->header().plan_id, parts_[role]);
  });
  return all;
}

void SlotGatherer::note_captured(const StepFacts& facts) {
  for_each_device_read(facts, [&](const DeviceRead& read, Role, std::uint32_t) {
    if (read.source == 0) return;
    if (DeviceFeed* from = feed(read.source)) from->note_captured(read.token);
  });
  captured_.push_back(facts);
}

std::optional<StepFacts> SlotGatherer::next_replay() {
  begin();
  for (const StepFacts& facts : captured_) {
    bool whole = true;
    for_each_device_read(facts, [&](const DeviceRead& read, Role, std::uint32_t) {
      if (read.source == 0) return;
      DeviceFeed* from = feed(read.source);
      whole = whole && from != nullptr && from->has_replay(read.token);
    });
    if (!whole) continue;
    for_each_device_read(facts, [&](const DeviceRead& read, Role role, std::uint32_t number) {
      if (read.source == 0) return;
      DeviceFeed* from = feed(read.source);
      arrived_ |= 1u << number;
      arrived_totals_[read.source] = from->totals();
      add(from->take_replay(read.token), from->header().plan_id, parts_[role]);
    });
    return facts;
  }
  return std::nullopt;
}

const collectors::StepSlots& SlotGatherer::take(const StepFacts& facts) {
  begin();
  taken_ = true;
  newest_host_ = 0;
  take_from_host(facts.grad_sequence, parts_[kGradients]);
  take_from_host(facts.loss_sequence, parts_[kLoss]);
  take_from_host(facts.weight_sequence, parts_[kWeights]);
  if (parts_[kGradients].found) slots_.gradients = parts_[kGradients].stats;
  if (parts_[kLoss].found) slots_.loss = parts_[kLoss].stats;
  if (parts_[kWeights].found) slots_.weights = parts_[kWeights].stats;

  totals_ = host_totals_;
  for (const auto& [source, totals] : arrived_totals_) kernels::add_totals(totals_, totals);
  return slots_;
}

DeviceFeed* SlotGatherer::feed(std::uint64_t source) {
  auto& feed = feeds_[source];
  if (feed == nullptr) {
    auto known = handoff_.source(source);
    if (known != nullptr) feed = std::make_unique<DeviceFeed>(std::move(known));
  }
  return feed.get();
}

void SlotGatherer::take_from_host(std::uint64_t sequence, Part& part) {
  if (sequence == 0 || !handoff_.read(sequence, host_header_, host_stats_)) return;
  if (sequence > newest_host_) {
    newest_host_ = sequence;
    host_totals_ = host_header_.totals;
  }
  add(host_stats_, host_header_.plan_id, part);
}

/// Each entry is in the slot of its own device and `elsewhere`, or left out, in the others.
void SlotGatherer::add(const Stats& stats, std::uint64_t plan_id, Part& part) {
  if (slots_.plan == nullptr) slots_.plan = handoff_.plan(plan_id);
  // The parameters may have been replaced within the step: entries of two plans do not mix.
  if (slots_.plan == nullptr || slots_.plan->id != plan_id) return;
  if (!part.found || part.stats.size() != stats.size()) {
    part.stats = stats;
    part.found = true;
    return;
  }
  for (std::size_t i = 0; i < stats.size(); ++i) {
    const EntryTag had = collectors::tag_of(part.stats[i]);
    if (had == EntryTag::elsewhere || collectors::tag_of(stats[i]) == EntryTag::read)
      part.stats[i] = stats[i];
  }
}

}  // namespace gradvane::agent
