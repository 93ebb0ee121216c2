#pragma once
// Frames: what a recording is a sequence of. Each stands for itself, so that one can be torn, overwritten or
// lost without the others. docs/recording-format.md.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exporters/recording/deflate.hpp"

namespace gradvane::exporters::recording {

enum class FrameType : std::uint8_t {
  run = 1,       ///< RunInfo
  model = 2,     ///< ModelInfo
  step = 3,      ///< StepRecord, and which model it is of
  detail = 4,    ///< StepDetail of the step frame right before it
  incident = 5,  ///< as it was then; the latest of an id holds
  state = 6,     ///< of the run
  syncs = 7,     ///< SyncSummary; the latest holds
  end = 8,       ///< why nothing follows, at the time of writing
};

inline constexpr std::size_t kFrameHeaderSize = 32;

struct FrameHeader {
  std::uint8_t type = 0;
  bool is_packed = false;
  std::uint64_t sequence = 0;  ///< from 1, in order of writing
  std::uint32_t stored_size = 0;
  std::uint32_t raw_size = 0;
  std::uint32_t payload_crc = 0;
};

/// Puts a whole frame behind what `out` has.
void append_frame(std::string& out, FrameType type, std::uint64_t sequence, std::string_view raw,
                  Deflater& deflater);

/// The header at the front of `bytes`; empty where there is none, or its checksum says otherwise.
[[nodiscard]] std::optional<FrameHeader> frame_header_of(std::string_view bytes) noexcept;

[[nodiscard]] std::uint32_t crc32_of(std::string_view bytes) noexcept;

/// A frame that was found whole.
struct Frame {
  FrameHeader header;
  std::string_view stored;  ///< the payload as it lies in the file
};

/// Finds the frames of a text, stepping over whatever is none.
class FrameScanner {
 public:
  explicit FrameScanner(std::string_view bytes) noexcept;

  /// The next whole frame.
  [[nodiscard]] std::optional<Frame> next() noexcept;

  [[nodiscard]] std::size_t position() const noexcept {
    return position_;
  }  ///< behind the last frame
  [[nodiscard]] std::size_t bytes_skipped() const noexcept { return skipped_; }
  [[nodiscard]] std::int64_t damaged() const noexcept {
    return damaged_;
  }  ///< headers without payload
  /// A file made to keep us busy is given up on.
  [[nodiscard]] bool gave_up() const noexcept { return work_left_ == 0; }

 private:
  std::string_view bytes_;
  std::size_t position_ = 0;
  std::size_t skipped_ = 0;
  std::int64_t damaged_ = 0;
  std::size_t work_left_;  ///< payload bytes that may still be checked
};

/// The payload, unpacked. Empty where it is larger than `most`, or not what its header says.
[[nodiscard]] std::optional<std::string> payload_of(const Frame& frame, std::size_t most);

}  // namespace gradvane::exporters::recording
