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
  [[nodiscard]] ExportResult start(
      const record::RunInfo& run, std::shared_ptr<const record::ModelInfo> model) noexcept override;
  [[nodiscard]] ExportResult set_model(
      std::shared_ptr<const record::ModelInfo> model) noexcept override;
  [[nodiscard]] ExportResult export_step(const record::StepRecord& record,
                                         const record::StepDetail& detail,
                                         const record::ModelInfo& model) noexcept override;
  [[nodiscard]] ExportResult export_incident(const record::Incident& incident) noexcept override;
  [[nodiscard]] ExportResult export_syncs(
      std::shared_ptr<const record::SyncSummary> syncs) noexcept override;
  [[nodiscard]] ExportResult set_run_state(record::RunState state,
                                           std::string_view reason) noexcept override;
  [[nodiscard]] ExportResult finish(std::chrono::milliseconds budget) noexcept override;

  /// Failed calls so far, all exporters together.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }

 private:
  template <typename Call>
  ExportResult each(Call call) noexcept;

  std::shared_ptr<MetricSet> metrics_;
  std::vector<std::shared_ptr<Exporter>> exporters_;
  std::uint64_t failures_ = 0;
};

}  // namespace gradvane::exporters
