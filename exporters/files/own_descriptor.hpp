#pragma once
// A file descriptor that no other process shares, and that is still the one we opened.
#include <sys/types.h>

#include <utility>

namespace gradvane::exporters {

/// Owns an open descriptor and closes it at the end. In the child of a fork it is closed at once, and get()
/// is -1 there: a child that lives longer than its parent must not hold the parent's locks, and must not
/// write into its files. The caller opens with O_CLOEXEC.
///
/// A program may close all descriptors that it does not know, ours too, and open files that get their numbers.
/// So get() compares device and inode each time: -1 where the number now belongs to another file, which is
/// then neither written to nor closed. And the numbers are from kFirst on: open() gives the lowest free one, so
/// a program's new file does not get one of ours between such a look and the write after it.
///
/// One object is for one thread; different objects may be used at the same time. Nothing throws.
class OwnDescriptor {
 public:
  OwnDescriptor() noexcept = default;
  /// Takes `descriptor`, moved up to kFirst or above: where the process may not open so many, from the middle of what it may;
  /// where that is full, it stays where it is, but never at a standard stream's. Below 0 means none. Where kMost are open
  /// already it is closed, and errno is EMFILE. If the number has become another file's meanwhile, this is left alone, and
  /// errno is EBADF.
  explicit OwnDescriptor(int descriptor) noexcept;
  /// The same for a file that was just made as `name` in `directory`, and that nothing else replaces: also if the number
  /// became another file's before this was called, it is left alone.
  OwnDescriptor(int descriptor, int directory, const char* name) noexcept;
  ~OwnDescriptor() { close(); }
  OwnDescriptor(OwnDescriptor&& other) noexcept
      : place_(std::exchange(other.place_, -1)), device_(other.device_), inode_(other.inode_) {}
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept;

  /// -1: none, this is a child of the process that opened it, or the program has closed it.
  [[nodiscard]] int get() const noexcept;
  [[nodiscard]] bool is_open() const noexcept { return get() >= 0; }
  /// Whether `name` in `directory` is the file that was opened.
  [[nodiscard]] bool is_named(int directory, const char* name) const noexcept;
  /// False where close(2) failed; errno says why.
  bool close() noexcept;

  static constexpr int kMost = 1024;  ///< at a time in a process
  static constexpr int kFirst = 512;

 private:
  [[nodiscard]] bool identify(int descriptor) noexcept;
  void keep(int descriptor) noexcept;
  [[nodiscard]] bool is_same_file(int descriptor) const noexcept;

  int place_ = -1;  ///< in the table that the child's handler reads
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace gradvane::exporters
