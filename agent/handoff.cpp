#include "agent/handoff.hpp"

#include <algorithm>
#include <utility>

namespace gradvane::agent {

Handoff::Handoff(int ring_slots) : ring_slots_(ring_slots) {
  rings_.reserve(kKnownRings + 1);  // so that the producer never points at a ring that nobody keeps
}

void Handoff::set_plans(std::span<const std::shared_ptr<const collectors::ReadPlan>> plans,
                        std::size_t entries) {
  const auto tensors = static_cast<std::int64_t>(entries);
  const std::lock_guard lock(mutex_);
  plans_.insert(plans_.end(), plans.begin(), plans.end());
  if (plans_.size() > kKnownPlans)
    plans_.erase(plans_.begin(), plans_.end() - static_cast<std::ptrdiff_t>(kKnownPlans));
  if (!rings_.empty() && rings_.back().ring->max_tensors() >= tensors) return;

  auto ring = std::make_shared<kernels::ResultRing>(
      kernels::ResultRing::slots_for(ring_slots_, tensors), tensors);
  // The old ring stays readable; numbers and totals go on in the new one.
  const kernels::ProducerState state = producer_ ? producer_->state() : kernels::ProducerState{};
  producer_ = std::make_unique<kernels::RingProducer>(*ring, state);
  rings_.push_back({std::move(ring), state.sequence});
  if (rings_.size() > kKnownRings) rings_.erase(rings_.begin());
}

void Handoff::add_sources(std::vector<std::shared_ptr<const collectors::DeviceSource>> sources) {
  const std::lock_guard lock(mutex_);
  for (auto& source : sources) sources_.push_back(std::move(source));
}

void Handoff::note_device_failure(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (device_failure_.empty()) device_failure_ = why;
}

std::shared_ptr<const collectors::DeviceSource> Handoff::source(std::uint64_t id) {
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
  return producer_->publish(plan_id, sites, stats);
}

void Handoff::publish(const collectors::StepFacts& facts) noexcept {
  facts_.write(++facts_written_, facts);
}

Handoff::NextFacts Handoff::next(collectors::StepFacts& facts) noexcept {
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
    for (const Ring& known : rings_)
      if (known.after < sequence) ring = known.ring;
  }
  if (ring == nullptr) return false;
  const kernels::RingReader reader(*ring);
  return reader.read(sequence, header, stats) == kernels::ReadStatus::ok;
}

std::shared_ptr<const collectors::ReadPlan> Handoff::plan(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (auto known = plans_.rbegin(); known != plans_.rend(); ++known)
    if ((*known)->id == id) return *known;
  return nullptr;
}

std::shared_ptr<const record::ModelInfo> Handoff::newest_model() {
  const std::lock_guard lock(mutex_);
  return plans_.empty() ? nullptr : plans_.back()->model;
}

}  // namespace gradvane::agent
