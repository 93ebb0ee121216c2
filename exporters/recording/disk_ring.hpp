#pragma once
// The last steps of a run in a file, for when the process is killed: SIGKILL leaves no time to write anything.
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "exporters/recording/file_header.hpp"

namespace gradvane::exporters::recording {

/// A file of fixed size, allocated when it is opened, in which frames go round. What was written is with the
/// kernel, and survives the process however it ends; there is no fsync, so a machine that dies may take the
/// last seconds with it. It is written by pwrite: a mapping would turn a full disk into SIGBUS.
///
/// Nothing throws. Not thread-safe.
class DiskRing {
 public:
  DiskRing(std::filesystem::path path, FileHeader header)
      : path_(std::move(path)), header_(header) {}
  ~DiskRing() { close(); }
  DiskRing(const DiskRing&) = delete;  // one owner of the descriptor
  DiskRing& operator=(const DiskRing&) = delete;

  /// Makes the file anew. One that is there, which an earlier run may have left for somebody to read, is kept
  /// under the name that previous_path() gives. False where that is not possible; errno says why.
  bool open() noexcept;
  /// Frames that belong together. False: they are not in the file, and it is closed unless they are just too
  /// large, which takes nothing from those that are there.
  bool append(std::string_view frames) noexcept;
  /// In a child too: it closes and writes nothing.
  void close() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }

  /// Bytes written since open(). What was written at `written() - size()` is gone.
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return header_.ring_size; }
  /// More would leave too little room for others, and a reader may not find where it begins.
  [[nodiscard]] std::uint64_t most_at_once() const noexcept { return header_.ring_size / 4; }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] static std::filesystem::path previous_path(const std::filesystem::path& path);

 private:
  bool allocate() noexcept;
  bool write_at(std::string_view bytes, std::uint64_t offset) noexcept;

  std::filesystem::path path_;
  FileHeader header_;
  int descriptor_ = -1;
  bool is_ours_ = false;  ///< the file with that name
  std::uint64_t written_ = 0;
};

}  // namespace gradvane::exporters::recording
