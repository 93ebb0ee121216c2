#include "detectors/incident_slot.hpp"

#include <utility>

namespace gradvane::detectors {

void IncidentSlot::judge(bool is_bad, const record::StepRecord& step,
                         const std::function<void(record::Incident&)>& describe,
                         const Report& report) {
  if (!is_bad) {
    bad_in_a_row_ = 0;
    bad_since_.reset();
    if (!open_ || ++good_in_a_row_ < rule_.close_after) return;
    record::Incident closed = *std::exchange(open_, std::nullopt);
    closed.closed_at = step.time;
    report(closed);
    return;
  }
  good_in_a_row_ = 0;
  if (!bad_since_) bad_since_ = step.run_step;
  ++bad_in_a_row_;
  if (open_) {
    open_->last_step = step.run_step;
    ++open_->steps;
    return;
  }
  if (bad_in_a_row_ < rule_.open_after) return;
  record::Incident fresh;
  fresh.kind = kind_;
  fresh.rank = rank_;
  fresh.first_step = *bad_since_;
  fresh.last_step = step.run_step;
  fresh.steps = bad_in_a_row_;
  fresh.opened_at = step.time;
  describe(fresh);
  fresh.id = ids_.next();
  open_ = std::move(fresh);
  report(*open_);
}

}  // namespace gradvane::detectors
