#pragma once
// Host syncs in, metrics out: the part of PrometheusExporter that knows the sync ledger.
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "exporters/metric_set.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::exporters {

/// Most places in the code that get series of their own; `other` comes on top.
inline constexpr std::size_t kMostSyncLocations = 20;

/// What nobody has counted yet has no series: a ledger that sees nothing never reads as zero.
/// Threading: as PrometheusExporter, whose worker calls under MetricSet::hold().
class SyncMetrics {
 public:
  explicit SyncMetrics(MetricSet& metrics) : metrics_(metrics) {}

  /// Where the counts come from, before anybody has said so.
  void start() { put_source({}); }
  void put(const record::SyncSummary& syncs);
  void put(const record::StepRecord& record);

 private:
  void put_source(const record::SyncSummary& syncs);
  void put_totals(const record::SyncSummary& syncs);
  void put_budgets(const record::SyncSummary& syncs);
  void put_locations(const record::SyncSummary& syncs);
  bool make_location(std::string_view location, const record::SyncTally& tally);

  MetricSet& metrics_;
  std::string_view source_;  ///< of the series that is there now
  std::string_view reason_;
  std::set<std::string, std::less<>> own_;                          ///< have series of their own
  std::map<std::string, record::SyncTally, std::less<>> in_other_;  ///< count in `other`, for good
};

}  // namespace gradvane::exporters
