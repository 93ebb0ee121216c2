#pragma once
// Which incident gets a file, what the file holds, and when more is put into it.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/recorder/recorded.hpp"
#include "exporters/recorder/snapshot_file.hpp"
#include "record/incident.hpp"

namespace gradvane::exporters::recording {

/// A file begins with the steps in memory, and gets those that follow: when they fill half of what memory
/// holds, and when its incidents have been over for a while. An incident that comes soon after another joins
/// that one's file. Not thread-safe.
class IncidentFiles {
 public:
  struct Options {
    std::shared_ptr<RunDirectory> directory;  ///< null: nothing is written
    int steps = 1000;                         ///< most steps in memory
    int kept = 8;                             ///< most files of this run and rank
    std::chrono::milliseconds refill = std::chrono::minutes(1);  ///< one more file may be written
  };

  IncidentFiles(Options options, Recorded& recorded)
      : options_(std::move(options)), recorded_(recorded) {}

  void start(const record::RunInfo& run);

  // Each that returns bool: false where a file could not be written or completed, which is counted.

  /// Call it for an incident that has just opened, when the step it was found in is in memory. `run_step` is
  /// the latest step: the file is named by it.
  bool open(const record::Incident& incident, std::int64_t run_step);
  void close(std::int64_t incident);
  /// After each step: writes the steps since the last time to open files, before memory drops them.
  bool step();
  /// Writes all that is in memory to a file now, no matter how many were written lately: to the latest that
  /// is open, else to a new one. `reason` is one word, by which a new file is named.
  bool write_now(std::string_view reason, std::int64_t run_step);
  /// Completes what is open.
  bool finish();

  /// The latest file; empty where none was written.
  [[nodiscard]] const std::filesystem::path& last_file() const noexcept { return last_file_; }

 private:
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

  bool write(std::string_view word, std::string_view reason, std::int64_t run_step);
  bool extend(OpenFile& file, std::string_view reason);
  [[nodiscard]] bool is_half(const OpenFile& file) const;
  [[nodiscard]] bool may_write();

  Options options_;
  Recorded& recorded_;
  std::optional<SnapshotFiles> files_;
  std::vector<OpenFile> open_;
  std::filesystem::path last_file_;
  double tokens_ = 0;  ///< files that may be written now
  Clock::time_point refilled_at_;
};

}  // namespace gradvane::exporters::recording
