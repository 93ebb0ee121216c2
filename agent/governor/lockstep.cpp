#include "agent/governor/lockstep.hpp"

#include <algorithm>
#include <utility>

namespace gradvane::agent {

ranks::RankRecord Lockstep::tell(const StepFinding& step, const std::optional<PendingIncident>& own,
                                 const ranks::Policy& policy) noexcept {
  ranks::RankRecord record;
  record.sequence = ++told_;
  record.run_step = step.run_step;
  record.optimizer = step.optimizer;
  record.loss_is_bad = step.loss_is_bad;
  record.gradients_are_bad = step.gradients_are_bad;
  record.bad_micro_step = step.bad_micro_step;
  record.own_bad = step.own_bad;
  record.has_scaler = step.has_scaler;
  record.norm = step.norm;
  record.is_part = step.is_part;
  record.snapshots = good_snapshots_;
  record.policy = policy;
  told_incident_ = own;
  if (own) {
    record.incident = own->kind;
    record.bad_since = own->bad_since;
  }
  return record;
}

void Lockstep::end() noexcept {
  is_on_ = false;
  if (!incident_) incident_ = std::exchange(told_incident_, std::nullopt);
}

StepFinding Lockstep::join(const StepFinding& step, const ranks::Agreement& agreed) noexcept {
  if (agreed.incident && !incident_)
    incident_ = PendingIncident{*agreed.incident, agreed.bad_since};
  told_incident_.reset();
  common_snapshots_ = agreed.snapshots;
  StepFinding joint = step;
  joint.loss_is_bad = agreed.loss_is_bad;
  joint.gradients_are_bad = agreed.gradients_are_bad;
  joint.norm = agreed.norm;
  joint.is_agreed = true;
  return joint;
}

std::optional<PendingIncident> Lockstep::take_incident() noexcept {
  return std::exchange(incident_, std::nullopt);
}

std::int64_t Lockstep::common_snapshot(std::optional<std::int64_t> bad_since) const noexcept {
  const auto found = std::ranges::find_if(common_snapshots_, [&](std::int64_t step) {
    return step > 0 && (!bad_since || step < *bad_since);
  });
  return found == common_snapshots_.end() ? 0 : *found;
}

}  // namespace gradvane::agent
