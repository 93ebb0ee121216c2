#pragma once
// A file that grows by whole lines and starts afresh when it gets too long.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "exporters/files/file_lock.hpp"
#include "exporters/files/own_descriptor.hpp"

namespace gradvane::exporters {

/// A line is in the file as a whole or not at all, also where the disk runs full half-way through it:
/// each is one write(2), and what a short write left is cut off again. Nothing throws. Not thread-safe.
///
/// A file has one writer: where another holds its lock, this one takes `<stem>.<pid><suffix>`. A file system
/// without locks goes without. What is below /dev or /proc (/dev/stdout, a process substitution), a pipe and a
/// terminal is only ever written to: no lock, no rotation. A pipe that is full or that nobody reads fails at
/// once. In a forked child the file is closed.
class LineFile {
 public:
  /// @param max_bytes  a line that would pass this size goes to a new file; 0: never. A path that is a link
  ///                   is not rotated either
  /// @param keep       older files kept beside it as PATH.1 (the newest) to PATH.<keep>
  LineFile(const std::filesystem::path& path, std::int64_t max_bytes, int keep,
           LockCall lock = lock_file);
  ~LineFile() { close(); }
  LineFile(const LineFile&) = delete;  // one owner of the descriptor
  LineFile& operator=(const LineFile&) = delete;

  /// Opens for appending, or creates with mode 0644 less the umask. False where that is not possible; errno
  /// says why.
  bool open() noexcept;
  /// `line` ends with a line feed. Opens the file if it is not. False: the line is not in the file.
  bool append(std::string_view line) noexcept;
  void close() noexcept;

  /// The one that was asked for, or the one that this process took instead.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  bool open_path();
  bool open_one(const std::filesystem::path& path, Locked& locked);
  bool end_torn_line();
  bool rotate();
  bool write_whole(std::string_view line) noexcept;
  bool write_to_pipe(std::string_view line);

  std::filesystem::path path_;
  std::int64_t max_bytes_;
  int keep_;
  LockCall lock_;
  bool is_device_;  ///< below /dev or /proc
  OwnDescriptor file_;
  bool is_regular_ = false;  ///< a pipe or terminal has no size to look at
  std::int64_t size_ = 0;
  std::string rest_;  ///< of a line that a pipe took a part of
};

}  // namespace gradvane::exporters
