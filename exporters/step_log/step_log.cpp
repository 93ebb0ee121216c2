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

ExportResult StepLog::on_start(const record::RunInfo& run,
                               const std::shared_ptr<const record::ModelInfo>& /*model*/) {
  file_ = std::make_unique<LineFile>(rank_path(options_.path, run.rank, run.world_size),
                                     options_.max_bytes, options_.keep);
  wished_path_ = file_->path();
  error_ = file_->open() ? 0 : errno;
  return error_ == 0 ? ExportResult::ok : ExportResult::failed;
}

std::string StepLog::note() const {
  if (!file_ || file_->path() == wished_path_) return {};
  return "step log: another process writes " + wished_path_.string() + ", this one writes " +
         file_->path().string();
}

ExportResult StepLog::on_step(const record::StepRecord& record,
                              const record::StepDetail& /*detail*/,
                              const record::ModelInfo& model) {
  if (!file_) return ExportResult::failed;  // start() ran out of memory
  line_ = to_text(to_json(record, model));
  line_ += '\n';
  return file_->append(line_) ? ExportResult::ok : ExportResult::failed;
}

ExportResult StepLog::on_finish(std::chrono::milliseconds /*budget*/) {
  file_.reset();  // every line is already with the kernel
  return ExportResult::ok;
}

}  // namespace gradvane::exporters
