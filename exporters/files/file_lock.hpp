#pragma once
// A lock that a process holds by a file, until it ends.
#include <sys/types.h>

#include <string>

#include "exporters/files/own_descriptor.hpp"

namespace gradvane::exporters {

enum class Locked {
  yes,
  busy,         ///< another process, or another part of this one, holds it
  unsupported,  ///< the file system has no locks
  failed,       ///< there can be no such file; errno says why
};

/// flock(2) of an open file. Never waits.
[[nodiscard]] Locked lock_file(int descriptor) noexcept;
using LockCall = Locked (*)(int descriptor) noexcept;

/// The lock file `name` in a directory. The kernel takes the lock back when the process ends, however it
/// ends; a forked child does not hold it. Not thread-safe.
class FileLock {
 public:
  FileLock() noexcept = default;
  ~FileLock() =
      default;  // without release() the file stays, unlocked: that is what a killed process leaves
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;

  /// Makes the file, mode 0600, where it is missing. A file of a user other than `owner`, a link and a pipe
  /// count as busy.
  [[nodiscard]] Locked take(int directory, const std::string& name, uid_t owner,
                            LockCall lock = lock_file) noexcept;
  /// Removes the file and gives the lock back. `directory` is that of take(). No effect in a forked child.
  void release(int directory) noexcept;
  [[nodiscard]] bool is_held() const noexcept { return file_.is_open(); }

 private:
  OwnDescriptor file_;
  std::string name_;
};

}  // namespace gradvane::exporters
