#include "exporters/history/step_series.hpp"

#include <algorithm>
#include <cmath>

namespace gradvane::exporters {
namespace {

using record::StepRecord;
using Number = std::optional<double>;

template <typename T>
Number number(const std::optional<T>& value) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}

Number zero_ratio(const StepRecord& record) {
  if (record.grad_numel <= 0) return std::nullopt;
  return static_cast<double>(record.grad_zero) / static_cast<double>(record.grad_numel);
}

Number largest_rate(const StepRecord& record) {
  if (record.lr_count <= 0) return std::nullopt;
  return *std::max_element(
      record.lr.begin(), record.lr.begin() + std::min(record.lr_count, record::kMaxLearningRates));
}

Number agent_seconds(const StepRecord& record) {
  if (!record.step_seconds) return std::nullopt;
  return record.agent_seconds;
}

Number host_syncs(const StepRecord& record) {
  if (!record.syncs) return std::nullopt;
  return record.syncs->count(record::SyncOrigin::training);
}

Number host_sync_seconds(const StepRecord& record) {
  if (!record.syncs) return std::nullopt;
  return record.syncs->seconds[static_cast<std::size_t>(record::SyncOrigin::training)];
}

Number tokens_per_second(const StepRecord& record) {
  if (!record.tokens || !record.step_seconds || !(*record.step_seconds > 0)) return std::nullopt;
  return *record.tokens / *record.step_seconds;
}

}  // namespace

const std::array<StepSeries, kStepSeries>& step_series() noexcept {
  static constexpr std::array<StepSeries, kStepSeries> kSeries{{
      {"loss", [](const StepRecord& r) { return r.loss; }},
      {"grad_norm", [](const StepRecord& r) { return r.grad_norm; }},
      {"grad_norm_at_step", [](const StepRecord& r) { return r.grad_norm_at_step; }},
      {"clip_coefficient", [](const StepRecord& r) { return r.clip_coefficient; }},
      {"grad_abs_max", [](const StepRecord& r) { return r.grad_abs_max; }},
      {"grad_zero_ratio", zero_ratio},
      {"weight_norm", [](const StepRecord& r) { return r.weight_norm; }},
      {"update_ratio", [](const StepRecord& r) { return r.update_ratio; }},
      {"lr", largest_rate},
      {"loss_scale", [](const StepRecord& r) { return r.loss_scale; }},
      {"step_seconds", [](const StepRecord& r) { return r.step_seconds; }},
      {"agent_seconds", agent_seconds},
      {"host_syncs", host_syncs},
      {"host_sync_seconds", host_sync_seconds},
      {"tokens_per_second", tokens_per_second},
      {"process_resident_bytes",
       [](const StepRecord& r) { return number(r.process_resident_bytes); }},
      {"device_allocated_bytes",
       [](const StepRecord& r) { return number(r.device_allocated_bytes); }},
  }};
  return kSeries;
}

Number finite(Number value) noexcept {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace gradvane::exporters
