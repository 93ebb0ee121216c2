#include "detectors/good_state.hpp"

#include <algorithm>

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::Site;

}  // namespace

record::Incident GoodState::note(const record::Incident& incident) {
  record::Incident stamped = incident;
  const auto [known, is_new] = at_open_.try_emplace(incident.id, last_good_);
  if (is_new && incident.last_good_step) {
    last_good_ = known->second = incident.last_good_step;  // who opened it knows
  } else if (is_new && last_good_) {
    // What became bad between two reads of the weights may have been bad since the first of them.
    if (incident.kind == IncidentClass::nonfinite_weight && !incident.order.empty()) {
      const auto last_finite = incident.order.front().last_finite;
      known->second =
          last_finite ? std::optional(std::min(*last_good_, *last_finite)) : std::nullopt;
    } else if (*last_good_ >= incident.first_step && is_divergence(incident.kind)) {
      known->second =
          incident.first_step > 1 ? std::optional(incident.first_step - 1) : std::nullopt;
    }
    if (is_nonfinite(incident.kind) || is_divergence(incident.kind)) last_good_ = known->second;
  }
  stamped.last_good_step = known->second;
  if (is_nonfinite(incident.kind)) nonfinite_.insert(incident.id);
  // Weights of replicas that differ are those of no model that somebody meant.
  if (is_divergence(incident.kind) || incident.kind == IncidentClass::replica_mismatch)
    diverging_.insert(incident.id);
  if (incident.closed_at) {
    at_open_.erase(incident.id);
    diverging_.erase(incident.id);
    if (nonfinite_.erase(incident.id) > 0 && nonfinite_.empty()) is_spoilt_ = false;
  }
  return stamped;
}

void GoodState::observe(const record::StepRecord& step) {
  const bool is_bad = step.has_nonfinite(Site::loss) || step.has_nonfinite(Site::grad);
  const bool was_taken = step.skipped == record::SkipReason::none;
  const bool was_read = step.site_measured[index_of(Site::loss)].value_or(false) ||
                        step.site_measured[index_of(Site::grad)].value_or(false);
  // Lost records may have held anything: the detector opens an incident where the totals show it.
  if (step.has_nonfinite(Site::weight) || (is_bad && was_taken)) is_spoilt_ = true;
  if (!is_bad && was_read && step.is_step() && is_good()) last_good_ = step.run_step;
}

}  // namespace gradvane::detectors
