#pragma once
// What tells one content of a file from another, without reading it.
#include <cstdint>
#include <string>

namespace gradvane::exporters {

struct FileStamp {
  bool is_there = false;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t size = 0;      ///< -1: no regular file
  std::int64_t modified = 0;  ///< nanoseconds since the epoch

  bool operator==(const FileStamp&) const = default;
};

/// Of the file that links lead to; not there if it cannot be looked at.
[[nodiscard]] FileStamp stamp_of(const std::string& file) noexcept;

}  // namespace gradvane::exporters
