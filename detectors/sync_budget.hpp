#pragma once
// Opens an incident at the first step with more host syncs than it may have, and closes it when steps have
// kept to their budget for a while.
//
// Rule: a step is over its budget when it was counted from end to end and had more syncs than allowed, of the
// kinds that wait by design: an allocation that took long may never have waited for the GPU. The training's budget
// holds after the first steps, which load code and fill caches. Gradvane's own (0 where it is lagged, one a
// device where it is immediate) always holds. The incident closes after kClearAfter counted steps within the budget.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "detectors/incident_slot.hpp"
#include "record/incident.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::detectors {

class SyncBudgetDetector {
 public:
  static constexpr int kClearAfter = 10;

  struct Budget {
    std::optional<std::int32_t> training;  ///< absent: any number
    std::int32_t after_steps = 0;          ///< of this process, that may have more
  };
  /// Where the syncs of one origin came from in the step in hand, most calls first. Asked only for an
  /// incident's evidence.
  using Sites = std::function<std::vector<record::StepSyncSite>(record::SyncOrigin)>;

  /// `book` outlives the detector.
  SyncBudgetDetector(std::int32_t rank, Budget budget, IncidentBook& book, Report report)
      : budget_(budget),
        training_(record::IncidentClass::sync_budget, rank, {1, kClearAfter}, book),
        own_(record::IncidentClass::own_sync_budget, rank, {1, kClearAfter}, book),
        report_(std::move(report)) {}

  /// From the next step on.
  void change(const Budget& budget, const Moment& now) {
    budget_ = budget;
    for (IncidentSlot* slot : {&training_, &own_}) slot->drop_if_not_judged(now, report_);
    if (!budget.training) training_.drop(now, report_);
  }
  /// Judges one step. Throws only what `report` and `sites` throw.
  void observe(const record::StepRecord& step, const Sites& sites);
  /// Incidents that are open, as they stand.
  void tell_open(const Report& tell) const {
    for (const IncidentSlot* slot : {&training_, &own_}) slot->tell_open(tell);
  }

  /// Fills what budgets make of a summary.
  void fill(record::SyncSummary& summary) const;

 private:
  void judge(record::SyncOrigin origin, std::int32_t budget, const record::StepRecord& step,
             const Sites& sites);

  Budget budget_;
  IncidentSlot training_;
  IncidentSlot own_;
  Report report_;
  std::int64_t steps_ = 0;
  std::int64_t budgeted_steps_ = 0;
  std::int32_t own_budget_ = 0;
  std::array<std::int64_t, record::kSyncOrigins> steps_over_{};
  std::int64_t uncounted_ = 0;
  std::int64_t most_ = 0;
  std::int64_t most_at_ = 0;
};

}  // namespace gradvane::detectors
