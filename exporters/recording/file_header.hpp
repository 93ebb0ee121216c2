#pragma once
// The first bytes of a recording: that it is one, and how its frames lie.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradvane::exporters::recording {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::size_t kFileHeaderSize = 64;

struct FileHeader {
  std::uint32_t version = kFormatVersion;
  std::uint64_t ring_size = 0;  ///< bytes of the ring that follows; 0: frames one after the other
  std::int64_t pid = 0;         ///< of the run, so that a file can be told from another's
  std::int64_t rank = 0;
  double start_time = 0;
};

[[nodiscard]] std::string bytes_of(const FileHeader& header);

/// Whether these are the first bytes of a recording, though the rest of its header may be damaged.
[[nodiscard]] bool has_file_magic(std::string_view bytes) noexcept;
/// Empty where the header is damaged.
[[nodiscard]] std::optional<FileHeader> file_header_of(std::string_view bytes) noexcept;

}  // namespace gradvane::exporters::recording
