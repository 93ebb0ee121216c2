#pragma once
// The metric catalogue: every metric Gradvane can publish, spelled once. Exposition, docs/metrics.md,
// dashboards and alert rules are made from this table or tested against it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "record/names.hpp"

namespace gradvane::record {

/// One enumerator per metric, in the order of the table. Names follow the metric's own, without the
/// prefix `gradvane_`.
enum class Metric : std::uint8_t {
  // the run
  run_info,
  world_size,
  build_info,
  run_state,
  run_start_timestamp_seconds,
  run_end_info,
  // steps and time
  steps_total,
  micro_steps_total,
  run_step,
  last_step_timestamp_seconds,
  step_duration_seconds,
  phase_seconds_total,
  tokens_total,
  samples_total,
  model_flops_utilization_ratio,
  // loss and optimizer
  loss,
  learning_rate,
  loss_scale,
  user_metric,
  // gradients and weights, all parameters together
  grad_norm,
  grad_norm_at_step,
  shard_grad_norm,
  clip_coefficient,
  grad_abs_max,
  grad_abs_min_nonzero,
  grad_abs_mean,
  grad_zero_ratio,
  grad_subnormal_ratio,
  weight_norm,
  update_ratio,
  grad_health,
  params,
  params_vanishing,
  params_exploding,
  // by group
  group_grad_norm,
  group_grad_abs_max,
  group_grad_abs_min_nonzero,
  group_grad_abs_mean,
  group_grad_zero_ratio,
  group_grad_subnormal_ratio,
  group_weight_norm,
  group_update_ratio,
  // what went wrong
  site_reads_total,
  nonfinite_elements_total,
  nonfinite_steps_total,
  amp_overflow_steps_total,
  skipped_steps_total,
  snapshots_total,
  snapshot_age_seconds,
  rollbacks_total,
  ranks_agree,
  incidents_total,
  incidents_open,
  incident_info,
  recordings_total,
  alert_pushes_total,
  // memory
  process_resident_memory_bytes,
  device_memory_allocated_bytes,
  device_memory_reserved_bytes,
  device_memory_peak_bytes,
  device_memory_limit_bytes,
  device_allocation_retries_total,
  device_out_of_memory_total,
  device_info,
  // host syncs
  host_syncs_total,
  host_sync_seconds_total,
  host_syncs_by_phase_total,
  host_sync_phase_seconds_total,
  host_sync_location_total,
  host_sync_location_seconds_total,
  device_polls_total,
  device_poll_seconds_total,
  step_host_syncs,
  sync_budget,
  sync_budget_breaches_total,
  sync_source_info,
  sync_coverage_seconds_total,
  sync_gaps_total,
  sync_records_dropped_total,
  // the agent itself
  agent_seconds_total,
  rank_wait_seconds_total,
  records_dropped_total,
  export_failures_total,
  plan_rebuilds_total,
  contiguous_copies_total,
  nonfinite_values_refused_total,
  series,
  series_limit,
  series_dropped_total,
  user_families_dropped_total,
  scrapes_total,
  scrape_seconds_total,
  http_requests_total,
  http_connections_dropped_total,
};
inline constexpr std::size_t kMetrics =
    static_cast<std::size_t>(Metric::http_connections_dropped_total) + 1;

/// An info metric is a gauge whose value is always 1; its labels are the message.
enum class MetricType : std::uint8_t { counter, gauge, histogram, info };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<MetricType> =
    std::to_array<std::string_view>({"counter", "gauge", "histogram", "info"});

/// A label beyond `run` and `rank`, which every series carries.
struct LabelInfo {
  std::string_view name;
  std::span<const std::string_view> values;  ///< all it can be; empty: not known beforehand
  bool optional = false;  ///< the last label of some: runs with one optimizer are without it
};

struct MetricInfo {
  Metric metric;
  std::string_view name;  ///< with the prefix
  MetricType type;
  std::string_view unit;  ///< base unit; empty for a pure number
  std::span<const LabelInfo> labels;
  std::string_view help;
  std::string_view present;  ///< when its series exist, one sentence
  bool from_start;           ///< all series of closed labels exist before step 1, counters at 0
};

/// The whole table, index = Metric.
[[nodiscard]] std::span<const MetricInfo> metric_catalogue() noexcept;
[[nodiscard]] const MetricInfo& info_of(Metric metric) noexcept;

/// Every label's values are known beforehand (also true where there is no label).
[[nodiscard]] bool is_closed(const MetricInfo& info) noexcept;

/// Where several optimizers step, its series say whose they are.
[[nodiscard]] bool is_of_optimizer(const MetricInfo& info) noexcept;
[[nodiscard]] bool is_of_optimizer(Metric metric) noexcept;

/// Upper bounds of the buckets of gradvane_step_duration_seconds, in seconds; +Inf comes on top.
[[nodiscard]] std::span<const double> step_duration_buckets() noexcept;

/// `group` of a non-finite loss, which belongs to no parameter group.
inline constexpr std::string_view kLossGroup = "loss";
/// `group` of non-finite steps whose own record was lost: the count is right, the group is not known.
inline constexpr std::string_view kUnknownGroup = "unknown";

}  // namespace gradvane::record
