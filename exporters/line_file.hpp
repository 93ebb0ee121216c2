#pragma once
// A file that grows by whole lines and starts afresh when it gets too long.
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace gradvane::exporters {

/// A line is in the file as a whole or not at all, also where the disk runs full half-way through it:
/// each is one write(2), and what a short write left is cut off again. Nothing throws. Not thread-safe.
class LineFile {
 public:
  /// @param max_bytes  a line that would pass this size goes to a new file; 0: never
  /// @param keep       older files kept beside it as PATH.1 (the newest) to PATH.<keep>
  LineFile(std::filesystem::path path, std::int64_t max_bytes, int keep);
  ~LineFile();
  LineFile(const LineFile&) = delete;  // one owner of the descriptor
  LineFile& operator=(const LineFile&) = delete;

  /// Opens for appending, or creates with mode 0644. False where that is not possible; errno says why.
  bool open() noexcept;
  /// `line` ends with a line feed. Opens the file if it is not. False: the line is not in the file.
  bool append(std::string_view line) noexcept;
  void close() noexcept;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  bool rotate() noexcept;
  bool write_whole(std::string_view line) noexcept;

  std::filesystem::path path_;
  std::int64_t max_bytes_;
  int keep_;
  int descriptor_ = -1;
  bool is_regular_ = false;  ///< a pipe or terminal has no size to look at
  std::int64_t size_ = 0;
};

}  // namespace gradvane::exporters
