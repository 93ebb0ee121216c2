#include "exporters/prometheus/sync_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "record/names.hpp"

namespace gradvane::exporters {

using record::Metric;
using record::SyncOrigin;
using record::SyncTally;

namespace {

/// Both counters of a pair: how often, and for how long. False where one of them has no room.
bool raise(MetricSet& metrics, Metric calls, Metric seconds, const SyncTally& tally,
           MetricSet::LabelValues labels) {
  const bool counts = metrics.raise_to(calls, static_cast<double>(tally.calls), labels);
  return metrics.raise_to(seconds, tally.seconds, labels) && counts;
}

bool raise_location(MetricSet& metrics, std::string_view location, const SyncTally& tally) {
  return raise(metrics, Metric::host_sync_location_total, Metric::host_sync_location_seconds_total,
               tally, {location});
}

/// The training's sites where it waited, those of one place taken together.
std::map<std::string_view, SyncTally> places_of(const record::SyncSummary& syncs) {
  std::map<std::string_view, SyncTally> places;
  for (const record::SyncSite& site : syncs.sites) {
    if (site.origin != SyncOrigin::training) continue;
    if (site.kind == record::SyncKind::rejected_in_capture) continue;
    SyncTally& place = places[site.location];
    place.calls += site.total.calls;
    if (std::isfinite(site.total.seconds)) place.seconds += site.total.seconds;
  }
  return places;
}

}  // namespace

void SyncMetrics::put(const record::SyncSummary& syncs) {
  put_source(syncs);
  metrics_.raise_to(Metric::sync_coverage_seconds_total, syncs.covered_seconds, {"covered"});
  metrics_.raise_to(Metric::sync_coverage_seconds_total, syncs.blind_seconds, {"blind"});
  metrics_.raise_to(Metric::sync_gaps_total, static_cast<double>(syncs.gaps));
  for (std::size_t i = 0; i < record::kSyncDrops; ++i) {
    metrics_.raise_to(Metric::sync_records_dropped_total, static_cast<double>(syncs.dropped[i]),
                      {record::kNames<record::SyncDrop>[i]});
  }
  if (!syncs.has_counted()) return;
  put_totals(syncs);
  put_budgets(syncs);
  put_locations(syncs);
}

void SyncMetrics::put(const record::StepRecord& record) {
  if (!record.syncs) return;
  for (std::size_t i = 0; i < record::kSyncOrigins; ++i) {
    metrics_.set(Metric::step_host_syncs, record.syncs->count(static_cast<SyncOrigin>(i)),
                 {record::kNames<record::SyncOrigin>[i]});
  }
}

void SyncMetrics::put_source(const record::SyncSummary& syncs) {
  const std::string_view source = name_of(syncs.source);
  const std::string_view reason = name_of(syncs.reason);
  if (source == source_ && reason == reason_) return;
  if (!source_.empty()) metrics_.remove(Metric::sync_source_info, {source_, reason_});
  metrics_.set(Metric::sync_source_info, 1, {source, reason});
  source_ = source;
  reason_ = reason;
}

void SyncMetrics::put_totals(const record::SyncSummary& syncs) {
  for (std::size_t origin = 0; origin < record::kSyncOrigins; ++origin) {
    const std::string_view origin_name = record::kNames<record::SyncOrigin>[origin];
    for (std::size_t kind = 0; kind < record::kSyncKinds; ++kind) {
      raise(metrics_, Metric::host_syncs_total, Metric::host_sync_seconds_total,
            syncs.totals[origin][kind], {record::kNames<record::SyncKind>[kind], origin_name});
    }
  }
  // A poll has no place, so nobody can tell those of a profiler from the others.
  for (const SyncOrigin origin : {SyncOrigin::training, SyncOrigin::gradvane}) {
    raise(metrics_, Metric::device_polls_total, Metric::device_poll_seconds_total,
          syncs.polls[index_of(origin)], {name_of(origin)});
  }
  for (std::size_t phase = 0; phase < record::kStepPhases; ++phase) {
    raise(metrics_, Metric::host_syncs_by_phase_total, Metric::host_sync_phase_seconds_total,
          syncs.by_phase[phase], {record::kNames<record::Phase>[phase]});
  }
}

void SyncMetrics::put_budgets(const record::SyncSummary& syncs) {
  const auto put_one = [&](SyncOrigin origin, std::int32_t budget) {
    metrics_.set(Metric::sync_budget, budget, {name_of(origin)});
    metrics_.raise_to(Metric::sync_budget_breaches_total,
                      static_cast<double>(syncs.steps_over[index_of(origin)]), {name_of(origin)});
  };
  put_one(SyncOrigin::gradvane, syncs.own_budget);
  if (syncs.budget) put_one(SyncOrigin::training, *syncs.budget);
}

/// A place is given its series, or to `other`, the first time it is seen, and stays there. So no counter
/// goes down, and no second counts twice.
void SyncMetrics::put_locations(const record::SyncSummary& syncs) {
  const auto places = places_of(syncs);
  raise_location(metrics_, record::kOtherLocation, {});  // before the others take the room

  std::vector<std::pair<std::string_view, SyncTally>> unknown;
  for (const auto& [location, tally] : places) {
    if (own_.contains(location)) {
      raise_location(metrics_, location, tally);
    } else if (const auto known = in_other_.find(location); known != in_other_.end()) {
      known->second.calls = std::max(known->second.calls, tally.calls);
      known->second.seconds = std::max(known->second.seconds, tally.seconds);
    } else {
      unknown.emplace_back(location, tally);
    }
  }
  std::ranges::sort(
      unknown, {}, [](const auto& place) { return std::pair(-place.second.seconds, place.first); });
  for (const auto& [location, tally] : unknown) {
    if (location != record::kOtherLocation && own_.size() < kMostSyncLocations &&
        make_location(location, tally)) {
      own_.emplace(location);
    } else {
      in_other_.emplace(location, tally);
    }
  }

  SyncTally other;
  for (const auto& [location, tally] : in_other_) {
    other.calls += tally.calls;
    other.seconds += tally.seconds;
  }
  raise_location(metrics_, record::kOtherLocation, other);
}

/// False where there is no room for a series more.
bool SyncMetrics::make_location(std::string_view location, const SyncTally& tally) {
  if (raise_location(metrics_, location, tally)) return true;
  // The one that did find room would count again under `other`.
  metrics_.remove(Metric::host_sync_location_total, {location});
  metrics_.remove(Metric::host_sync_location_seconds_total, {location});
  return false;
}

}  // namespace gradvane::exporters
