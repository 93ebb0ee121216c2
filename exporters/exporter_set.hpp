#pragma once
// Several exporters behind one: each gets every call, and what fails is counted per exporter.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exporters/exporter.hpp"
#include "exporters/metric_set.hpp"

namespace gradvane::exporters {

/// Its own result is `failed` where at least one exporter failed, `closed` where all were closed.
/// Threading: as Exporter; add() before start().
class ExporterSet final : public Exporter {
 public:
  /// Failures are counted in gradvane_export_failures_total of `metrics`, which may be null.
  explicit ExporterSet(std::shared_ptr<MetricSet> metrics) : metrics_(std::move(metrics)) {}

  void add(std::shared_ptr<Exporter> exporter) { exporters_.push_back(std::move(exporter)); }

  [[nodiscard]] std::string_view name() const noexcept override { return "all"; }

  /// Failed calls so far, all exporters together.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }

 private:
  ExportResult on_start(const record::RunInfo& run,
                        const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_model(const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                       const record::ModelInfo& model) override;
  ExportResult on_incident(const record::Incident& incident) override;
  ExportResult on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) override;
  ExportResult on_governor(const record::GovernorSummary& summary) override;
  ExportResult on_settings(const std::vector<record::Setting>& settings) override;
  ExportResult on_run_state(record::RunState state, std::string_view reason) override;
  ExportResult on_finish(std::chrono::milliseconds budget) override;

  template <typename Call>
  ExportResult each(Call call) noexcept;

  std::shared_ptr<MetricSet> metrics_;
  std::vector<std::shared_ptr<Exporter>> exporters_;
  std::uint64_t failures_ = 0;
};

}  // namespace gradvane::exporters
