#include "exporters/step_log/step_log.hpp"

#include <errno.h>

#include <nlohmann/json.hpp>

#include "exporters/json/record_json.hpp"

namespace gradvane::exporters {

std::filesystem::path rank_path(const std::filesystem::path& path, int rank, int world_size) {
  if (world_size <= 1) return path;
  std::filesystem::path named = path;
  named.replace_filename(path.stem().string() + ".rank" + std::to_string(rank) +
                         path.extension().string());
  return named;
}

ExportResult StepLog::start(const record::RunInfo& run,
                            std::shared_ptr<const record::ModelInfo> /*model*/) noexcept try {
  file_ = std::make_unique<LineFile>(rank_path(options_.path, run.rank, run.world_size),
                                     options_.max_bytes, options_.keep);
  wished_path_ = file_->path();
  error_ = file_->open() ? 0 : errno;
  return error_ == 0 ? ExportResult::ok : ExportResult::failed;
} catch (...) {
  return ExportResult::failed;
}

std::string StepLog::note() const {
  if (!file_ || file_->path() == wished_path_) return {};
  return "step log: another process writes " + wished_path_.string() + ", this one writes " +
         file_->path().string();
}

ExportResult StepLog::set_model(std::shared_ptr<const record::ModelInfo> /*model*/) noexcept {
  return file_ ? ExportResult::ok : ExportResult::closed;
}

ExportResult StepLog::export_step(const record::StepRecord& record,
                                  const record::StepDetail& /*detail*/,
                                  const record::ModelInfo& model) noexcept try {
  if (!file_) return ExportResult::closed;
  line_ = to_text(to_json(record, model));
  line_ += '\n';
  return file_->append(line_) ? ExportResult::ok : ExportResult::failed;
} catch (...) {
  return ExportResult::failed;
}

ExportResult StepLog::export_incident(const record::Incident& /*incident*/) noexcept {
  return file_ ? ExportResult::ok : ExportResult::closed;  // one line a step, and nothing else
}

ExportResult StepLog::export_syncs(std::shared_ptr<const record::SyncSummary> /*syncs*/) noexcept {
  return file_ ? ExportResult::ok : ExportResult::closed;  // a step has its own in its line
}

ExportResult StepLog::set_run_state(record::RunState /*state*/,
                                    std::string_view /*reason*/) noexcept {
  return file_ ? ExportResult::ok : ExportResult::closed;
}

ExportResult StepLog::finish(std::chrono::milliseconds /*budget*/) noexcept {
  if (!file_) return ExportResult::closed;
  file_.reset();  // every line is already with the kernel
  return ExportResult::ok;
}

}  // namespace gradvane::exporters
