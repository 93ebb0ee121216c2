#include "collectors/steps/handoff.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace gradvane::collectors {

Handoff::Handoff(int ring_slots) : ring_slots_(ring_slots) {
  rings_.reserve(kKnownRings + 1);  // so that the producer never points at a ring that nobody keeps
}

void Handoff::set_plans(std::span<const std::shared_ptr<const ReadPlan>> plans,
                        std::size_t entries) {
  const auto tensors = static_cast<std::int64_t>(entries);
  const std::lock_guard lock(mutex_);
  std::unordered_set<std::uint64_t> now;
  for (const auto& plan : plans) {
    plans_[plan->id].plan = plan;
    now.insert(plan->id);
  }
  for (const std::uint64_t id : in_use_)
    if (!now.contains(id)) replaced_.push_back(id);
  in_use_.assign(now.begin(), now.end());
  if (!plans.empty()) newest_model_ = plans.back()->model;
  forget_replaced();
  if (!rings_.empty() && rings_.back().ring->max_tensors() >= tensors) return;

  auto ring = std::make_shared<kernels::ResultRing>(
      kernels::ResultRing::slots_for(ring_slots_, tensors), tensors);
  // The old ring stays readable; numbers and totals go on in the new one.
  const kernels::ProducerState state = producer_ ? producer_->state() : kernels::ProducerState{};
  producer_ = std::make_unique<kernels::RingProducer>(*ring, state);
  rings_.push_back({std::move(ring), state.sequence});
  if (rings_.size() > kKnownRings) rings_.erase(rings_.begin());
}

/// Keeps of the replaced plans those that a slot which can still be read may name.
void Handoff::forget_replaced() {
  std::size_t for_devices =
      sources_.empty() ? 0 : std::max(kReplacedForDevices, 2 * in_use_.size());
  std::vector<std::uint64_t> kept;
  for (auto id = replaced_.rbegin(); id != replaced_.rend(); ++id) {
    const std::uint64_t last_read = plans_[*id].last_read;
    const Ring* ring = ring_of(last_read);
    const bool is_readable =
        last_read > 0 && ring != nullptr && ring->ring->slots().oldest() <= last_read;
    if (is_readable || for_devices > 0) {
      kept.push_back(*id);
      for_devices -= is_readable ? 0 : 1;
    } else {
      plans_.erase(*id);
    }
  }
  replaced_.assign(kept.rbegin(), kept.rend());
}

/// Where a read went; null where that ring is gone.
const Handoff::Ring* Handoff::ring_of(std::uint64_t sequence) const noexcept {
  const Ring* found = nullptr;
  for (const Ring& known : rings_)
    if (known.after < sequence) found = &known;
  return found;
}

void Handoff::add_sources(std::vector<std::shared_ptr<const DeviceSource>> sources) {
  const std::lock_guard lock(mutex_);
  for (auto& source : sources) sources_.push_back(std::move(source));
}

void Handoff::note_device_failure(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (device_failure_.empty()) device_failure_ = why;
}

std::shared_ptr<const DeviceSource> Handoff::source(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (const auto& known : sources_)
    if (known->id == id) return known;
  return nullptr;
}

std::string Handoff::device_failure() {
  const std::lock_guard lock(mutex_);
  return device_failure_;
}

std::uint64_t Handoff::publish(std::uint64_t plan_id, std::span<const kernels::Site> sites,
                               std::span<const kernels::TensorStats> stats) noexcept {
  const std::uint64_t sequence = producer_->publish(plan_id, sites, stats);
  // Only this thread changes the map, so it may look without the lock.
  if (const auto known = plans_.find(plan_id); known != plans_.end())
    known->second.last_read = sequence;
  return sequence;
}

void Handoff::publish(const StepFacts& facts) noexcept {
  newest_.close();
  facts_.write(++facts_written_, facts);
}

void Handoff::publish_open(const StepFacts& facts) noexcept {
  newest_.open(++facts_written_);
  facts_.write(facts_written_, facts);
}

void Handoff::set_user_metrics(std::vector<std::string> names) {
  auto known = std::make_shared<const std::vector<std::string>>(std::move(names));
  const std::lock_guard lock(mutex_);
  user_metrics_ = std::move(known);
}

std::shared_ptr<const std::vector<std::string>> Handoff::user_metrics() {
  const std::lock_guard lock(mutex_);
  return user_metrics_;
}

Handoff::NextFacts Handoff::next(StepFacts& facts) noexcept {
  NextFacts result;
  for (;;) {
    switch (facts_.read(next_facts_, facts)) {
      case kernels::SlotStatus::ok:
        ++next_facts_;
        result.found = true;
        return result;
      case kernels::SlotStatus::not_yet:
        return result;
      case kernels::SlotStatus::overwritten: {
        const std::uint64_t oldest = std::max(facts_.oldest(), next_facts_ + 1);
        result.lost += oldest - next_facts_;
        next_facts_ = oldest;
        break;
      }
    }
  }
}

bool Handoff::read(std::uint64_t sequence, kernels::SlotHeader& header,
                   std::vector<kernels::TensorStats>& stats) {
  std::shared_ptr<kernels::ResultRing> ring;
  {
    const std::lock_guard lock(mutex_);
    if (const Ring* known = ring_of(sequence)) ring = known->ring;
  }
  if (ring == nullptr) return false;
  const kernels::RingReader reader(*ring);
  return reader.read(sequence, header, stats) == kernels::ReadStatus::ok;
}

std::shared_ptr<const ReadPlan> Handoff::plan(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto known = plans_.find(id);
  return known == plans_.end() ? nullptr : known->second.plan;
}

std::size_t Handoff::plans_kept() {
  const std::lock_guard lock(mutex_);
  return plans_.size();
}

std::shared_ptr<const record::ModelInfo> Handoff::newest_model() {
  const std::lock_guard lock(mutex_);
  return newest_model_;
}

}  // namespace gradvane::collectors
