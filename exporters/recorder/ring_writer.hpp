#pragma once
// Keeps the ring on disk readable at any moment, and creates it again after a fault.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "exporters/recorder/disk_ring.hpp"
#include "exporters/recorder/recorded.hpp"

namespace gradvane::exporters::recording {

/// The standing records are written again before the ring has come half round, so that one whole copy of
/// them is always in it. Not thread-safe.
///
/// A fault of the ring is counted when it begins, and not again with each try while it lasts.
class RingWriter {
 public:
  struct Options {
    std::shared_ptr<RunDirectory> directory;  ///< null: there is no ring
    std::size_t bytes = 0;                    ///< of the ring; 0: there is none
    std::size_t bytes_in_memory = 0;  ///< the same where the disk is a tmpfs; 0: as elsewhere
    std::chrono::milliseconds retry_after = std::chrono::seconds(1);  ///< doubled, up to a minute
  };

  RingWriter(Options options, Recorded& recorded)
      : options_(std::move(options)), recorded_(recorded), retry_after_(options_.retry_after) {}

  /// Makes the ring, where there is to be one. Each that returns bool: false only for a fault that was not
  /// counted yet.
  bool start(const record::RunInfo& run);
  /// Frames that belong together. A step is in the memory of `recorded` before it is put here: a ring that
  /// is created again is filled from there.
  bool put(std::string_view frames);
  /// Writes the standing records now; no fault is told by it.
  void put_standing();
  /// The last frames of a run; nothing is put after them.
  bool finish();
  /// Removes the file, of a run that ended well.
  void remove();

  [[nodiscard]] bool is_wanted() const noexcept { return ring_.has_value(); }

  /// Where the ring of a rank lies, if there is one.
  [[nodiscard]] static std::filesystem::path path(const std::filesystem::path& directory,
                                                  std::string_view run, int rank);

 private:
  using Clock = std::chrono::steady_clock;

  bool try_put(std::string_view frames);
  bool is_there();
  bool write_standing();
  bool fail();
  bool take_fault();

  Options options_;
  Recorded& recorded_;
  std::optional<DiskRing> ring_;
  std::uint64_t standing_at_ = 0;           ///< where in the ring the standing records begin
  std::optional<Clock::time_point> since_;  ///< it is whole; none: it is not
  bool has_new_fault_ = false;              ///< that no call has returned yet
  bool is_too_small_ = false;               ///< for a step: the others will be as large
  Clock::time_point retry_at_;
  std::chrono::milliseconds retry_after_;
};

}  // namespace gradvane::exporters::recording
