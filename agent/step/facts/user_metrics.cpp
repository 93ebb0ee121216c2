#include "agent/step/facts/user_metrics.hpp"

#include <limits>
#include <utility>
#include <vector>

#include "agent/step/facts/device_sources.hpp"

namespace gradvane::agent {

UserMetrics::UserMetrics(collectors::Handoff& handoff) noexcept : handoff_(handoff) {
  values_.fill(std::numeric_limits<double>::quiet_NaN());
}

void UserMetrics::resize(int ring_slots, std::uint64_t plan_id) {
  reads_.resize(std::vector(record::kMaxUserMetrics, kernels::Site::scalar), ring_slots, plan_id);
}

bool UserMetrics::takes(const collectors::Tensor& value) const noexcept {
  return reads_.takes(value) && collectors::facts_of(value).numel == 1;
}

bool UserMetrics::set(int index, double value) noexcept {
  if (index < 0) {
    refuse_name();
    return false;
  }
  values_[static_cast<std::size_t>(index)] = value;
  return true;
}

bool UserMetrics::set(int index, const collectors::Tensor& value) {
  if (index < 0) {
    refuse_name();
    return false;
  }
  device_values_[static_cast<std::size_t>(index)] = collectors::scalar_copy(value);
  has_device_values_ = true;
  return true;
}

void UserMetrics::read(collectors::StepFacts& facts) noexcept {
  if (!has_device_values_) return;
  has_device_values_ = false;
  for (std::size_t i = 0; i < device_values_.size(); ++i)
    if (device_values_[i].defined()) (void)reads_.set(i, std::exchange(device_values_[i], {}));
  (void)read_on_devices(reads_, collectors::SlotRole::user, facts, handoff_);
}

void UserMetrics::write_to(collectors::StepFacts& facts, std::size_t count) noexcept {
  facts.user = values_;
  facts.user_count = static_cast<std::int32_t>(count);
  facts.refused_names = std::exchange(refused_names_, 0);
}

void UserMetrics::pass_on_sources() noexcept { agent::pass_on_sources(reads_, handoff_); }

void UserMetrics::clear() noexcept {
  values_.fill(std::numeric_limits<double>::quiet_NaN());
  if (has_device_values_) device_values_.fill({});
  has_device_values_ = false;
}

}  // namespace gradvane::agent
