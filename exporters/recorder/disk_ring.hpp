#pragma once
// The last steps of a run in a file, for when the process is killed: SIGKILL leaves no time to write anything.
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "exporters/files/own_descriptor.hpp"
#include "exporters/files/run_directory.hpp"
#include "exporters/recording/file_header.hpp"

namespace gradvane::exporters::recording {

/// A file of fixed size, mode 0600, in which frames go round. What was written is with the kernel, and survives
/// the process however it ends; there is no fsync, so a machine that dies may take the last seconds with it.
/// It is written by pwrite: a mapping would turn a full disk into SIGBUS.
///
/// Its room on the disk is taken when it is opened, where the file system does that at once. In memory
/// (tmpfs) and on file systems without such a call it takes room as it is written.
///
/// Nothing throws. Not thread-safe.
class DiskRing {
 public:
  DiskRing(std::shared_ptr<RunDirectory> directory, std::string name, FileHeader header)
      : directory_(std::move(directory)), name_(std::move(name)), header_(header) {}

  /// Makes the file anew. One that is there, which an earlier run may have left for somebody to read, is kept
  /// under the name that previous_path() gives. False where that is not possible; errno says why.
  bool open() noexcept;
  /// Frames that belong together. False: they are not in the file, and it is closed unless they are just too
  /// large, which takes nothing from those that are there.
  bool append(std::string_view frames) noexcept;
  /// In a child too: it closes and writes nothing.
  void close() noexcept { file_.close(); }
  /// Closes it and removes the file, and that of the run before.
  void remove() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return file_.is_open(); }

  /// Bytes written since open(). What was written at `written() - size()` is gone.
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return header_.ring_size; }
  /// More would leave too little room for others, and a reader may not find where it begins.
  [[nodiscard]] std::uint64_t most_at_once() const noexcept { return header_.ring_size / 4; }

  [[nodiscard]] std::filesystem::path path() const { return directory_->path() / name_; }
  [[nodiscard]] static std::filesystem::path previous_path(const std::filesystem::path& path);

 private:
  bool make(int directory);
  bool allocate(int directory, int file) noexcept;
  static bool write_at(int file, std::string_view bytes, std::uint64_t offset) noexcept;
  [[nodiscard]] bool has_ours(int directory) const noexcept;

  std::shared_ptr<RunDirectory> directory_;
  std::string name_;
  FileHeader header_;
  OwnDescriptor file_;
  dev_t device_ = 0;  ///< of the file that we made last
  ino_t number_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace gradvane::exporters::recording
