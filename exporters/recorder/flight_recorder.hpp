#pragma once
// The flight recorder: what the last steps were like, in a file of its own for every incident, and in a ring
// on disk for runs that are killed. docs/recording-format.md.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "exporters/exporter.hpp"
#include "exporters/recorder/incident_files.hpp"
#include "exporters/recorder/recorded.hpp"
#include "exporters/recorder/ring_writer.hpp"

namespace gradvane::exporters::recording {

struct RecorderOptions {
  std::shared_ptr<RunDirectory> directory;           ///< null: nothing is written
  std::size_t memory_bytes = std::size_t{64} << 20;  ///< most that the steps in memory take
  int steps = 1000;                                  ///< most steps in memory
  std::size_t disk_bytes = 0;                        ///< of the ring on disk; 0: none
  std::size_t disk_bytes_in_memory = 0;  ///< the same where the disk is a tmpfs; 0: as elsewhere
  int kept = 8;                          ///< most files of this run and rank
  std::chrono::milliseconds refill = std::chrono::minutes(1);  ///< one more file may be written
  std::chrono::milliseconds retry_after = std::chrono::seconds(1);  ///< doubled, up to a minute
};

/// The ring on disk is gone when a run has finished; that of a run that failed, was killed, or ended amid an
/// incident stays.
///
/// A full disk, a directory that is gone, a limit on file sizes: each costs recordings and is counted, in
/// gradvane_recordings_total and gradvane_export_failures_total, and tried again later. The run goes on.
///
/// In a forked child nothing is written.
class FlightRecorder final : public Exporter {
 public:
  /// `metrics` may be null.
  FlightRecorder(const RecorderOptions& options, std::shared_ptr<MetricSet> metrics);
  ~FlightRecorder() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "flight_recorder"; }

  /// Writes all that is in memory to a file, now: for a signal, an exception, an exit after a fault. Where a
  /// file of an incident is still open, that one is completed instead. `reason` is one word, which the file is
  /// named by; it is not held back by how many files there were lately.
  [[nodiscard]] ExportResult write_now(std::string_view reason) noexcept;

  /// The latest file; empty where none was written.
  [[nodiscard]] const std::filesystem::path& last_file() const noexcept {
    return files_.last_file();
  }
  [[nodiscard]] const RecorderCounts& counts() const noexcept { return recorded_.counts; }
  [[nodiscard]] const StepMemory& memory() const noexcept { return recorded_.memory; }

 private:
  ExportResult on_start(const record::RunInfo& run,
                        const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_model(const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                       const record::ModelInfo& model) override;
  ExportResult on_incident(const record::Incident& incident) override;
  ExportResult on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) override;
  ExportResult on_settings(const std::vector<record::Setting>& settings) override;
  ExportResult on_run_state(record::RunState state, std::string_view reason) override;
  ExportResult on_finish(std::chrono::milliseconds budget) override;

  void take_model(std::shared_ptr<const record::ModelInfo> model);

  Recorded recorded_;
  RingWriter ring_;
  IncidentFiles files_;
  std::string frames_;  ///< of the record at hand
  std::chrono::steady_clock::time_point syncs_at_;
  std::int64_t last_step_ = 0;
  std::int64_t last_incident_ = 0;
  std::optional<record::Incident> waiting_;  ///< whose own step has not come yet
};

}  // namespace gradvane::exporters::recording
