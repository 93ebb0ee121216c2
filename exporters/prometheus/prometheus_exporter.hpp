#pragma once
// Steps in, metrics out: turns each record into the metrics of a MetricSet.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "exporters/by_optimizer.hpp"
#include "exporters/exporter.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/prometheus/incident_metrics.hpp"
#include "exporters/prometheus/sync_metrics.hpp"

namespace gradvane::exporters {

/// Gauges keep their last measured value through steps that do not measure them; those of a group leave
/// with the group. A step is seen by a scrape whole or not at all.
class PrometheusExporter final : public Exporter {
 public:
  /// @param most_groups  with more of them, no gauges of groups are published
  explicit PrometheusExporter(std::shared_ptr<MetricSet> metrics,
                              std::size_t most_groups = std::numeric_limits<std::size_t>::max())
      : metrics_(std::move(metrics)), most_groups_(most_groups) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "prometheus"; }

 private:
  ExportResult on_start(const record::RunInfo& run,
                        const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_model(const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                       const record::ModelInfo& model) override;
  ExportResult on_incident(const record::Incident& incident) override;
  ExportResult on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) override;
  ExportResult on_governor(const record::GovernorSummary& summary) override;
  ExportResult on_run_state(record::RunState state, std::string_view reason) override;

  void take_model(const record::ModelInfo& model);
  void export_time(const record::StepRecord& record);
  void note_optimizer(const record::StepRecord& record);
  [[nodiscard]] bool has_label(std::int32_t optimizer) const {
    return in_turns_.find(optimizer) != nullptr;
  }
  void forget_unlabelled();
  void forget_optimizer(std::int32_t optimizer);
  void put_params(const record::StepRecord& record);
  void put_of_optimizer(record::Metric metric, std::optional<double> value, std::int32_t optimizer);
  void export_numbers(const record::StepRecord& record, const record::ModelInfo& model);
  void export_groups(const record::StepDetail& detail);
  void export_nonfinite(const record::StepRecord& record, const record::StepDetail& detail,
                        const record::ModelInfo& model);
  void count_lost_steps(const record::StepRecord& record, record::Site site);

  std::shared_ptr<MetricSet> metrics_;
  std::vector<record::DeviceInfo> devices_;
  std::size_t most_groups_;
  std::uint64_t model_id_ = 0;
  bool has_stepped_ = false;
  RunLead lead_;
  /// Those that step in turns, whose series are labelled; none where there is only one.
  ByOptimizer<std::monostate> in_turns_;
  std::vector<std::string> groups_;                                      ///< that may have gauges
  std::array<record::NonfiniteCounts, record::kSites> elements_seen_{};  ///< running totals so far
  std::array<std::int64_t, record::kSites> steps_seen_{};
  IncidentMetrics incidents_{*metrics_};
  SyncMetrics syncs_{*metrics_};
};

}  // namespace gradvane::exporters
