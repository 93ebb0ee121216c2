#include "collectors/steps/held_records.hpp"

#include <utility>

#include "collectors/steps/step_builder.hpp"

namespace gradvane::collectors {

bool HeldRecords::must_hold(const record::StepRecord& record) const {
  return !held_.empty() ||
         (exchange_ != nullptr && record.norm_contribution && exchange_->is_open());
}

void HeldRecords::hold(Held held) {
  if (held.record.norm_contribution)
    exchange_->post({held.record.step, held.record.optimizer, *held.record.norm_contribution});
  held.until = Clock::now() + kPatience;
  held_.push_back(std::move(held));
}

std::optional<HeldRecords::Held> HeldRecords::next(bool all) {
  if (held_.empty()) return std::nullopt;
  Held& oldest = held_.front();
  bool is_complete = !oldest.record.norm_contribution;
  if (!is_complete) {
    if (const auto norm = exchange_->collect(oldest.record.step, oldest.record.optimizer)) {
      StepBuilder::take_global_norm(oldest.record, *norm, oldest.facts);
      is_complete = true;
    }
  }
  if (!is_complete && !all && exchange_->is_open() && held_.size() <= kMostHeld &&
      Clock::now() < oldest.until)
    return std::nullopt;
  Held taken = std::move(oldest);
  held_.pop_front();
  return taken;
}

}  // namespace gradvane::collectors
