#include "detectors/sync_budget.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "record/names.hpp"

namespace gradvane::detectors {
namespace {

using record::SyncOrigin;
using record::waits_surely;

constexpr std::size_t kNamed = 3;  ///< places in a sentence

std::string describe(SyncOrigin origin, std::int32_t count, std::int32_t budget,
                     const record::StepRecord& step,
                     const std::vector<record::StepSyncSite>& sites) {
  std::string sentence =
      "Step " + std::to_string(step.run_step) + ": " + std::to_string(count) +
      (origin == SyncOrigin::gradvane ? " host syncs by Gradvane itself" : " host syncs") +
      ", budget " + std::to_string(budget);
  for (std::size_t i = 0; i < std::min(kNamed, sites.size()); ++i)
    sentence += (i == 0 ? ": " : ", ") + sites[i].location + " (" +
                std::string(name_of(sites[i].kind)) + ", " + std::to_string(sites[i].calls) + ")";
  if (sites.size() > kNamed)
    sentence += " and " + std::to_string(sites.size() - kNamed) + " more places";
  return sentence + ".";
}

/// What waits by design. What only may wait counts by its time, and a thread that lost its CPU, or that asked
/// the system for memory, is no breach.
std::int32_t sure_count(const record::StepSyncs& syncs, SyncOrigin origin) {
  const auto& calls = syncs.calls[index_of(origin)];
  std::int64_t sum = 0;
  for (std::size_t kind = 0; kind < calls.size(); ++kind)
    if (waits_surely(static_cast<record::SyncKind>(kind))) sum += calls[kind];
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(sum, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

void SyncBudgetDetector::observe(const record::StepRecord& step, const Sites& sites) {
  if (!step.is_step()) return;
  ++steps_;
  if (!step.syncs) {
    // Of a run's very first step nobody sees the beginning.
    if (budget_.training && steps_ > std::max(budget_.after_steps, 1)) ++uncounted_;
    return;
  }
  own_budget_ = step.own_sync_budget;
  judge(SyncOrigin::gradvane, step.own_sync_budget, step, sites);
  if (steps_ <= budget_.after_steps) return;
  if (const std::int64_t count = sure_count(*step.syncs, SyncOrigin::training);
      budgeted_steps_++ == 0 || count > most_) {
    most_ = count;
    most_at_ = step.run_step;
  }
  if (budget_.training) judge(SyncOrigin::training, *budget_.training, step, sites);
}

void SyncBudgetDetector::judge(SyncOrigin origin, std::int32_t budget,
                               const record::StepRecord& step, const Sites& sites) {
  const std::int32_t count = sure_count(*step.syncs, origin);
  const bool is_over = count > budget;
  const auto at = index_of(origin);
  steps_over_[at] += is_over ? 1 : 0;
  const bool is_own = origin == SyncOrigin::gradvane;
  IncidentSlot& slot = is_own ? own_ : training_;
  slot.judge(
      is_over, step,
      [&](record::Incident& incident) {
        auto places = sites(origin);
        std::erase_if(places, [](const auto& place) { return !waits_surely(place.kind); });
        incident.evidence = describe(origin, count, budget, step, places);
      },
      report_);
}

void SyncBudgetDetector::fill(record::SyncSummary& summary) const {
  summary.budget = budget_.training;
  summary.own_budget = own_budget_;
  summary.steps_over = steps_over_;
  summary.most_in_step = most_;
  summary.most_in_step_at = most_at_;
  summary.steps_uncounted = uncounted_;
}

}  // namespace gradvane::detectors
