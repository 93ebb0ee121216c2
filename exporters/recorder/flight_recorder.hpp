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
#include <vector>

#include "exporters/exporter.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/recorder/disk_ring.hpp"
#include "exporters/recorder/snapshot_file.hpp"
#include "exporters/recorder/standing_records.hpp"
#include "exporters/recorder/step_memory.hpp"

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

/// What it has done and not done. Of the worker thread.
struct RecorderCounts {
  std::int64_t steps = 0;            ///< taken
  std::int64_t steps_too_large = 0;  ///< that the memory alone could not hold
  std::int64_t files = 0;            ///< written
  std::int64_t files_failed = 0;     ///< not written, or not completed
  std::int64_t files_spared = 0;     ///< of incidents that came too thick
  std::int64_t ring_failures = 0;    ///< the ring was not made, or lost
  std::int64_t ring_too_small = 0;   ///< frames that it cannot hold
};

/// A full disk, a directory that is gone, a limit on file sizes: each costs recordings and is counted, in
/// gradvane_recordings_total and gradvane_export_failures_total, and tried again later. The run goes on.
///
/// A fault of the ring is counted when it begins, and not again with each try while it lasts.
///
/// In a forked child nothing is written.
class FlightRecorder final : public Exporter {
 public:
  /// `metrics` may be null.
  FlightRecorder(RecorderOptions options, std::shared_ptr<MetricSet> metrics);
  ~FlightRecorder() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "flight_recorder"; }

  /// Writes all that is in memory to a file, now: for a signal, an exception, an exit after a fault. Where a
  /// file of an incident is still open, that one is completed instead. `reason` is one word, which the file is
  /// named by; it is not held back by how many files there were lately.
  [[nodiscard]] ExportResult write_now(std::string_view reason) noexcept;

  /// The latest file; empty where none was written.
  [[nodiscard]] const std::filesystem::path& last_file() const noexcept { return last_file_; }
  [[nodiscard]] const RecorderCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] const StepMemory& memory() const noexcept { return memory_; }
  /// Where the ring on disk of this rank lies, if there is one. It is gone when a run has finished; that of a
  /// run that failed, was killed, or ended amid an incident stays.
  [[nodiscard]] static std::filesystem::path ring_path(const std::filesystem::path& directory,
                                                       std::string_view run, int rank);

 private:
  ExportResult on_start(const record::RunInfo& run,
                        const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_model(const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                       const record::ModelInfo& model) override;
  ExportResult on_incident(const record::Incident& incident) override;
  ExportResult on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) override;
  ExportResult on_run_state(record::RunState state, std::string_view reason) override;
  ExportResult on_finish(std::chrono::milliseconds budget) override;

  using Clock = std::chrono::steady_clock;

  /// A file that what follows belongs to as well.
  struct OpenFile {
    std::string name;
    std::vector<std::int64_t> incidents;  ///< that have not closed yet
    std::uint64_t last_sequence = 0;      ///< of the steps in it
    std::int64_t steps_since = 0;         ///< the file was begun
    std::int64_t steps_over = 0;          ///< since the last of its incidents closed
    std::int64_t dropped_then = 0;        ///< steps that memory had dropped
    std::int64_t joined = 0;              ///< incidents, after the first
    bool has_half = false;                ///< the steps that follow fill half of what memory holds
  };

  void start_ring(const record::RunInfo& run);
  void take_model(std::shared_ptr<const record::ModelInfo> model);

  bool ring_put(std::string_view frames);
  bool try_ring_put(std::string_view frames);
  bool take_ring_fault();
  bool ring_is_there();
  bool ring_failed();
  bool write_standing();

  bool open_file(std::string_view word, std::string_view reason);
  bool extend(OpenFile& file, std::string_view reason);
  bool extend_files();
  [[nodiscard]] bool is_half(const OpenFile& file) const;
  bool record_incident(const record::Incident& incident);
  [[nodiscard]] bool may_open_file();
  void count(bool ok) noexcept;
  [[nodiscard]] EndFrame end_of(std::string_view reason, bool run_is_over) const;

  RecorderOptions options_;
  std::shared_ptr<MetricSet> metrics_;
  RecorderCounts counts_;
  StandingRecords standing_;
  FrameMaker maker_;
  StepMemory memory_;
  std::string frames_;  ///< of the step at hand

  std::optional<DiskRing> ring_;
  std::uint64_t standing_at_ = 0;  ///< where in the ring the standing records begin
  Clock::time_point syncs_at_;
  std::optional<Clock::time_point> ring_since_;  ///< it is whole; none: it is not
  bool has_new_ring_fault_ = false;              ///< that no call has returned yet
  bool is_ring_too_small_ = false;               ///< for a step: the others will be as large
  Clock::time_point retry_at_;
  std::chrono::milliseconds retry_after_{0};

  std::optional<SnapshotFiles> files_;
  std::vector<OpenFile> open_;
  std::filesystem::path last_file_;
  std::int64_t last_step_ = 0;
  std::int64_t last_incident_ = 0;
  std::optional<record::Incident> waiting_;  ///< whose own step has not come yet
  double tokens_ = 0;                        ///< files that may be written now
  Clock::time_point refilled_at_;
};

}  // namespace gradvane::exporters::recording
