#include "exporters/exporter.hpp"

#include <unistd.h>

namespace gradvane::exporters {

bool Exporter::is_open() const noexcept { return owner_ != 0 && owner_ == ::getpid(); }

template <typename Call>
ExportResult Exporter::while_open(Call call) const noexcept try {
  return is_open() ? call() : ExportResult::closed;
} catch (...) {
  return ExportResult::failed;
}

ExportResult Exporter::start(const record::RunInfo& run,
                             const std::shared_ptr<const record::ModelInfo>& model) noexcept {
  owner_ = ::getpid();
  const ExportResult result = while_open([&] { return on_start(run, model); });
  if (result == ExportResult::closed) owner_ = 0;
  return result;
}

ExportResult Exporter::set_model(const std::shared_ptr<const record::ModelInfo>& model) noexcept {
  return while_open([&] { return on_model(model); });
}

ExportResult Exporter::export_step(const record::StepRecord& record,
                                   const record::StepDetail& detail,
                                   const record::ModelInfo& model) noexcept {
  return while_open([&] { return on_step(record, detail, model); });
}

ExportResult Exporter::export_incident(const record::Incident& incident) noexcept {
  return while_open([&] { return on_incident(incident); });
}

ExportResult Exporter::export_syncs(
    const std::shared_ptr<const record::SyncSummary>& syncs) noexcept {
  return while_open([&] { return on_syncs(syncs); });
}

ExportResult Exporter::export_settings(const std::vector<record::Setting>& settings) noexcept {
  return while_open([&] { return on_settings(settings); });
}

ExportResult Exporter::export_governor(const record::GovernorSummary& summary) noexcept {
  return while_open([&] { return on_governor(summary); });
}

ExportResult Exporter::set_run_state(record::RunState state, std::string_view reason) noexcept {
  return while_open([&] { return on_run_state(state, reason); });
}

ExportResult Exporter::finish(std::chrono::milliseconds budget) noexcept {
  const ExportResult result = while_open([&] { return on_finish(budget); });
  owner_ = 0;
  return result;
}

ExportResult Exporter::on_model(const std::shared_ptr<const record::ModelInfo>& /*model*/) {
  return ExportResult::ok;
}

ExportResult Exporter::on_incident(const record::Incident& /*incident*/) {
  return ExportResult::ok;
}

ExportResult Exporter::on_syncs(const std::shared_ptr<const record::SyncSummary>& /*syncs*/) {
  return ExportResult::ok;
}

ExportResult Exporter::on_settings(const std::vector<record::Setting>& /*settings*/) {
  return ExportResult::ok;
}

ExportResult Exporter::on_governor(const record::GovernorSummary& /*summary*/) {
  return ExportResult::ok;
}

ExportResult Exporter::on_run_state(record::RunState /*state*/, std::string_view /*reason*/) {
  return ExportResult::ok;
}

ExportResult Exporter::on_finish(std::chrono::milliseconds /*budget*/) { return ExportResult::ok; }

}  // namespace gradvane::exporters
