#pragma once
// The step log: one JSON object a line for every optimizer step. docs/step-log.md is its contract.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "exporters/exporter.hpp"
#include "exporters/step_log/line_file.hpp"

namespace gradvane::exporters {

struct StepLogOptions {
  std::filesystem::path path;  ///< as the user gave it; the rank is put in by StepLog
  std::int64_t max_bytes = std::int64_t{256} << 20;  ///< of one file; 0: no limit
  int keep = 3;                                      ///< older files kept as PATH.1, PATH.2, ...
};

/// `path` with `.rank<R>` before its suffix where the world is larger than one.
[[nodiscard]] std::filesystem::path rank_path(const std::filesystem::path& path, int rank,
                                              int world_size);

/// An unwritable file or a full disk costs lines, each a `failed`, and is tried again with the next one.
class StepLog final : public Exporter {
 public:
  explicit StepLog(StepLogOptions options) : options_(std::move(options)) {}

  /// After start(): why the file cannot be written, as errno has it; 0: it can.
  [[nodiscard]] int error() const noexcept { return error_; }
  /// The file that was asked for, with the rank in its name. After start().
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return wished_path_; }
  /// After start(), where another process has the file: which one this process writes, for a person.
  [[nodiscard]] std::string note() const;

  [[nodiscard]] std::string_view name() const noexcept override { return "step_log"; }

 private:
  ExportResult on_start(const record::RunInfo& run,
                        const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                       const record::ModelInfo& model) override;
  ExportResult on_finish(std::chrono::milliseconds budget) override;

  StepLogOptions options_;
  std::unique_ptr<LineFile> file_;  ///< there between start() and finish()
  std::filesystem::path wished_path_;
  int error_ = 0;
  std::string line_;
};

}  // namespace gradvane::exporters
