#include "detectors/incident_slot.hpp"

#include <utility>

namespace gradvane::detectors {

void IncidentSlot::judge(bool is_bad, const Moment& now, const Describe& describe,
                         const Report& report) {
  if (!is_judged()) return;
  if (!is_bad) {
    bad_in_a_row_ = 0;
    bad_since_.reset();
    if (open_ && ++good_in_a_row_ >= rule_.close_after) close(now, report);
    return;
  }
  good_in_a_row_ = 0;
  if (!bad_since_) bad_since_ = now.run_step;
  ++bad_in_a_row_;
  if (open_) {
    open_->last_step = now.run_step;
    ++open_->steps;
    return;
  }
  if (bad_in_a_row_ >= rule_.open_after) open(now, describe, report);
}

void IncidentSlot::open(const Moment& now, const Describe& describe, const Report& report) {
  if (is_back(now)) {
    open_ = std::exchange(last_, std::nullopt);
    open_->closed_at.reset();
    open_->last_step = now.run_step;
    open_->steps += bad_in_a_row_;
    ++open_->reopened;
    report(*open_);
    return;
  }
  record::Incident fresh;
  fresh.kind = kind_;
  fresh.rank = rank_;
  fresh.first_step = *bad_since_;
  fresh.last_step = now.run_step;
  fresh.steps = bad_in_a_row_;
  fresh.opened_at = now.time;
  describe(fresh);
  fresh.id = book_.next_id();
  open_ = std::move(fresh);
  report(*open_);
}

bool IncidentSlot::is_back(const Moment& now) const noexcept {
  return last_ && now.monotonic - closed_monotonic_ < rule_.cooldown_seconds;
}

void IncidentSlot::close(const Moment& now, const Report& report) {
  if (!open_) return;
  good_in_a_row_ = bad_in_a_row_ = 0;
  bad_since_.reset();
  last_ = std::exchange(open_, std::nullopt);
  last_->closed_at = now.time;
  closed_monotonic_ = now.monotonic;
  report(*last_);
}

void IncidentSlot::went_back(const Moment& now, const Report& report) {
  close(now, report);
  good_in_a_row_ = bad_in_a_row_ = 0;
  bad_since_.reset();
}

void IncidentSlot::drop(const Moment& now, const Report& report) {
  went_back(now, report);
  last_.reset();
}

}  // namespace gradvane::detectors
