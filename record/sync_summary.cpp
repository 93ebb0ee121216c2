#include "record/sync_summary.hpp"

#include <algorithm>

namespace gradvane::record {
namespace {

void take(SyncTally& from, const SyncTally& amount) {
  from.calls -= amount.calls;
  from.seconds = std::max(0.0, from.seconds - amount.seconds);
}

}  // namespace

void SyncSummary::take_away(const SyncSummary& before) {
  for (std::size_t origin = 0; origin < kSyncOrigins; ++origin) {
    for (std::size_t kind = 0; kind < kSyncKinds; ++kind)
      take(totals[origin][kind], before.totals[origin][kind]);
    take(polls[origin], before.polls[origin]);
  }
  for (std::size_t part = 0; part < kSyncParts; ++part) take(parts[part], before.parts[part]);
  for (std::size_t phase = 0; phase < kStepPhases; ++phase)
    take(by_phase[phase], before.by_phase[phase]);
  for (std::size_t why = 0; why < kSyncDrops; ++why) dropped[why] -= before.dropped[why];
  covered_seconds = std::max(0.0, covered_seconds - before.covered_seconds);
  blind_seconds = std::max(0.0, blind_seconds - before.blind_seconds);
  gaps -= before.gaps;
  steps -= before.steps;
  whole_steps -= before.whole_steps;
  for (const SyncSite& old : before.sites) {
    const auto site = std::ranges::find(sites, old.id, &SyncSite::id);
    if (site == sites.end()) continue;
    take(site->total, old.total);
    take(site->in_steps, old.in_steps);
  }
  std::erase_if(sites, [](const SyncSite& site) { return site.total.calls == 0; });
  std::ranges::stable_sort(sites, std::ranges::greater{},
                           [](const SyncSite& site) { return site.total.seconds; });
}

}  // namespace gradvane::record
