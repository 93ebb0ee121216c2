#pragma once
// The directory that holds a run's endpoint file and recordings, and the claim that it is this process's.
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "exporters/files/file_lock.hpp"
#include "exporters/files/own_descriptor.hpp"

namespace gradvane::exporters {

/// gradvane-<uid>: what the user's run directories are below, in the temporary directory.
[[nodiscard]] std::filesystem::path runs_of_user(uid_t owner);
/// $TMPDIR where it is a directory, else /tmp.
[[nodiscard]] std::filesystem::path temporary_directory();
/// gradvane-<uid>/<run> under $TMPDIR, else /tmp. Characters of `run` that do not suit a file name become `_`.
[[nodiscard]] std::filesystem::path default_run_directory(std::string_view run);

struct RunDirectoryOptions {
  std::filesystem::path named = {};  ///< by the user; empty: default_run_directory(run)
  std::string run;
  /// Name of the lock file in it. Processes with the same one would write files of the same names.
  std::string lock_name;
  bool has_fallback = true;  ///< one with a random name under the temporary directory
  uid_t owner = ::geteuid();
  LockCall lock = lock_file;
};

/// Claims the directory when it is built, with a lock that lasts until release() or the end of the process.
/// Where another process has it, or the file system has no locks, this one takes `<run>.<pid>`: beside the
/// default directory, or in a directory that the user named. Where the directory is not to be trusted or
/// cannot be written to, a new one with a random name is taken. docs/run-directory.md.
///
/// Files are made by the descriptor of use(), never by path, so nobody can exchange the directory below us.
/// Nothing throws but std::bad_alloc in the constructor. Not thread-safe. In a forked child use() is -1.
class RunDirectory {
 public:
  explicit RunDirectory(RunDirectoryOptions options);
  ~RunDirectory() { release(); }
  RunDirectory(const RunDirectory&) = delete;  // one owner of the lock
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// The open directory. One that was removed is made and claimed again. -1: there is none; errno says why.
  [[nodiscard]] int use() noexcept;
  /// Ends the claim. After that use() is -1.
  void release() noexcept;

  /// Empty where there is none.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// The directory that was asked for can be used, or one beside or below it.
  [[nodiscard]] bool is_as_named() const noexcept { return is_as_named_; }
  /// Why it is not the directory that was asked for, for a person. Empty: it is.
  [[nodiscard]] const std::string& note() const noexcept { return note_; }
  [[nodiscard]] uid_t owner() const noexcept { return options_.owner; }

 private:
  bool claim();
  bool claim_own_name(bool has_locks);
  bool claim_random_name();
  bool is_there() const noexcept;
  [[nodiscard]] Locked try_lock(int directory) noexcept;
  void adopt(OwnDescriptor descriptor, std::filesystem::path path);

  RunDirectoryOptions options_;
  std::filesystem::path base_;  ///< of the default directory
  pid_t pid_ = ::getpid();
  OwnDescriptor directory_;
  FileLock lock_;
  std::filesystem::path path_;
  std::string note_;
  bool is_shared_name_ = false;  ///< the one that was asked for, which others may take later
  bool is_as_named_ = false;
  bool is_released_ = false;
};

}  // namespace gradvane::exporters
