#include "agent/step/facts/user_metrics.hpp"

#include <algorithm>
#include <utility>

#include "agent/step/facts/device_sources.hpp"

namespace gradvane::agent {

using collectors::LateValue;
using collectors::OpenStep;

void UserMetrics::OnDevice::set(std::size_t index, collectors::Tensor value) noexcept {
  values[index] = std::move(value);
  any = true;
}

void UserMetrics::OnDevice::clear() noexcept {
  if (std::exchange(any, false)) values.fill({});
}

UserMetrics::UserMetrics(collectors::Handoff& handoff) noexcept : handoff_(handoff) {
  values_.fill(record::kNotLogged);
}

void UserMetrics::resize(int ring_slots, std::uint64_t plan_id) {
  reads_.resize(std::vector(record::kMaxUserMetrics, kernels::Site::scalar), ring_slots, plan_id);
}

bool UserMetrics::takes(const collectors::Tensor& value) const noexcept {
  return reads_.takes(value) && collectors::facts_of(value).numel == 1;
}

/// -1: there is no room for its name, which is counted.
int UserMetrics::index_of(std::string_view name) {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return static_cast<int>(found - names_.begin());
  if (names_.size() == record::kMaxUserMetrics) {
    refuse_name();
    return -1;
  }
  names_.emplace_back(name);
  handoff_.set_user_metrics(names_);
  return static_cast<int>(names_.size()) - 1;
}

/// Whether a value belongs to the step that was taken last.
bool UserMetrics::is_late(std::size_t index) noexcept {
  if (!handoff_.newest().is_behind_it()) is_of_step_in_progress_[index] = true;
  return !is_of_step_in_progress_[index];
}

bool UserMetrics::set(std::string_view name, double value) {
  const int index = index_of(name);
  if (index < 0) return false;
  const auto place = static_cast<std::size_t>(index);
  if (is_late(place)) {
    OpenStep::Addition addition(handoff_.newest());
    if (addition) {
      addition.add({.of = LateValue::Of::metric, .metric = index, .value = value});
      return true;
    }
  }
  values_[place] = value;
  return true;
}

bool UserMetrics::set(std::string_view name, const collectors::Tensor& value) {
  const int index = index_of(name);
  if (index < 0) return false;
  const auto place = static_cast<std::size_t>(index);
  (is_late(place) ? late_ : on_device_).set(place, collectors::scalar_copy(value));
  return true;
}

void UserMetrics::read_late(bool is_capturing) noexcept {
  OpenStep::Addition addition(handoff_.newest());
  if (has_read_step_ || is_capturing || !addition) {
    for (std::size_t i = 0; i < late_.values.size(); ++i)
      if (late_.values[i].defined()) on_device_.set(i, std::move(late_.values[i]));
  } else {
    collectors::StepFacts facts;
    read(late_, facts);
    for (const collectors::SlotRead& read : facts.reads)
      addition.add({.of = LateValue::Of::read, .metric = count() - 1, .read = read});
  }
  late_.clear();
}

void UserMetrics::read(OnDevice& from, collectors::StepFacts& facts) noexcept {
  for (std::size_t i = 0; i < from.values.size(); ++i)
    if (from.values[i].defined()) (void)reads_.set(i, std::exchange(from.values[i], {}));
  from.any = false;
  (void)read_on_devices(reads_, collectors::SlotRole::user, facts, handoff_);
}

void UserMetrics::read(collectors::StepFacts& facts) noexcept {
  has_read_step_ = on_device_.any;
  if (on_device_.any) read(on_device_, facts);
}

void UserMetrics::write_to(collectors::StepFacts& facts) noexcept {
  facts.user = values_;
  facts.user_count = count();
  facts.refused_names = std::exchange(refused_names_, 0);
}

void UserMetrics::pass_on_sources() noexcept { agent::pass_on_sources(reads_, handoff_); }

void UserMetrics::clear() noexcept {
  values_.fill(record::kNotLogged);
  on_device_.clear();
}

}  // namespace gradvane::agent
