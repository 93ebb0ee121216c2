#pragma once
// A recording, read back.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/recording/codec.hpp"
#include "exporters/recording/frame.hpp"

namespace gradvane::exporters::recording {

/// What a file may make a reader do. Files come from other machines, damaged or made up. Besides, what is read may
/// take 16 MiB and 64 bytes for each byte of the file, which honest recordings stay far below: a small file
/// costs little, no matter what it claims.
struct ReadLimits {
  std::uint64_t file_bytes = std::uint64_t{8} << 30;
  std::size_t payload_bytes = std::size_t{256} << 20;  ///< of one frame, unpacked
  std::size_t record_bytes = std::size_t{512}
                             << 20;  ///< of memory, for models, incidents and words
  std::size_t steps = 250'000;       ///< the newest ones
};

struct RecordedStep {
  record::StepRecord record;
  std::shared_ptr<const record::ModelInfo>
      model;  ///< never null; empty where it is not in the file
  std::uint64_t sequence = 0;
  std::optional<Frame>
      detail;  ///< as it lies in the file: unpacked, all of them would not fit in memory
};

/// What was wrong with a file, all of which reading survived.
struct Damage {
  bool header = false;              ///< the first bytes are not what they were
  std::int64_t frames = 0;          ///< torn, or with a payload that makes no sense
  std::int64_t unknown_frames = 0;  ///< of a newer version
  std::int64_t unknown_words = 0;   ///< of a newer version, left at their default
  std::int64_t steps_left_out = 0;  ///< over the limit
  std::uint64_t bytes_skipped = 0;  ///< that belong to no frame; normal in a ring

  /// Apart from bytes that were skipped.
  [[nodiscard]] bool any() const noexcept {
    return header || frames > 0 || unknown_frames > 0 || unknown_words > 0 || steps_left_out > 0;
  }
};

struct Recording {
  std::optional<record::RunInfo> run;
  std::vector<std::shared_ptr<const record::ModelInfo>> models;  ///< in order of writing
  std::vector<RecordedStep> steps;                               ///< in order of writing
  std::vector<record::Incident> incidents;                       ///< by id, each as it was last
  std::vector<StateFrame> states;                    ///< in order of writing, without repeats
  std::shared_ptr<const record::SyncSummary> syncs;  ///< null where there is none
  std::optional<EndFrame> end;  ///< the last one; absent where the process died before it
  bool is_ring = false;
  Damage damage;
  std::size_t record_bytes = 0;              ///< the limit that it was read with
  std::shared_ptr<const std::string> bytes;  ///< what the frames of details point into

  /// Empty where there is none, or it is damaged.
  [[nodiscard]] record::StepDetail detail(const RecordedStep& step) const;
};

struct ReadResult {
  std::shared_ptr<const Recording> recording;  ///< null where there is nothing to read
  std::string error;                           ///< why, for a person
};

/// Neither throws for what is in a file, whatever it is.
[[nodiscard]] ReadResult read_recording(const std::filesystem::path& path,
                                        const ReadLimits& limits = {});
[[nodiscard]] ReadResult read_recording_bytes(std::string bytes, const ReadLimits& limits = {});

}  // namespace gradvane::exporters::recording
