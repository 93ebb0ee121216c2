#include "exporters/exporter_set.hpp"

#include <algorithm>

namespace gradvane::exporters {

template <typename Call>
ExportResult ExporterSet::each(Call call) noexcept {
  bool any_failed = false;
  bool any_ok = exporters_.empty();
  for (const auto& exporter : exporters_) {
    const ExportResult result = call(*exporter);
    any_ok = any_ok || result == ExportResult::ok;
    if (result != ExportResult::failed) continue;
    any_failed = true;
    ++failures_;
    if (metrics_) metrics_->add(record::Metric::export_failures_total, 1, {exporter->name()});
  }
  if (any_failed) return ExportResult::failed;
  return any_ok ? ExportResult::ok : ExportResult::closed;
}

ExportResult ExporterSet::on_start(const record::RunInfo& run,
                                   const std::shared_ptr<const record::ModelInfo>& model) {
  return each([&](Exporter& exporter) { return exporter.start(run, model); });
}

ExportResult ExporterSet::on_model(const std::shared_ptr<const record::ModelInfo>& model) {
  return each([&](Exporter& exporter) { return exporter.set_model(model); });
}

ExportResult ExporterSet::on_step(const record::StepRecord& record,
                                  const record::StepDetail& detail,
                                  const record::ModelInfo& model) {
  return each([&](Exporter& exporter) { return exporter.export_step(record, detail, model); });
}

ExportResult ExporterSet::on_incident(const record::Incident& incident) {
  return each([&](Exporter& exporter) { return exporter.export_incident(incident); });
}

ExportResult ExporterSet::on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) {
  return each([&](Exporter& exporter) { return exporter.export_syncs(syncs); });
}

ExportResult ExporterSet::on_settings(const std::vector<record::Setting>& settings) {
  return each([&](Exporter& exporter) { return exporter.export_settings(settings); });
}

ExportResult ExporterSet::on_governor(const record::GovernorSummary& summary) {
  return each([&](Exporter& exporter) { return exporter.export_governor(summary); });
}

ExportResult ExporterSet::on_run_state(record::RunState state, std::string_view reason) {
  return each([&](Exporter& exporter) { return exporter.set_run_state(state, reason); });
}

ExportResult ExporterSet::on_finish(std::chrono::milliseconds budget) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + budget;  // one budget for all of them
  return each([&](Exporter& exporter) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    return exporter.finish(std::max(left, std::chrono::milliseconds(0)));
  });
}

}  // namespace gradvane::exporters
