#include "record/numbers.hpp"

#include <algorithm>

namespace gradvane::record::detail {

std::optional<double> largest_rate(const StepRecord& record) {
  if (record.lr_count <= 0) return std::nullopt;
  return *std::max_element(record.lr.begin(),
                           record.lr.begin() + std::min(record.lr_count, kMaxLearningRates));
}

std::optional<double> host_syncs(const StepRecord& record) {
  if (!record.syncs) return std::nullopt;
  return record.syncs->count(SyncOrigin::training);
}

std::optional<double> host_sync_seconds(const StepRecord& record) {
  if (!record.syncs) return std::nullopt;
  return record.syncs->seconds[index_of(SyncOrigin::training)];
}

std::optional<double> tokens_per_second(const StepRecord& record) {
  if (!record.tokens || !record.step_seconds || !(*record.step_seconds > 0)) return std::nullopt;
  return *record.tokens / *record.step_seconds;
}

}  // namespace gradvane::record::detail
