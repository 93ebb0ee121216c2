#pragma once
// A file descriptor that no other process shares.
#include <utility>

namespace gradvane::exporters {

/// Owns an open descriptor and closes it at the end. In the child of a fork it is closed at once, and get()
/// is -1 there: a child that lives longer than its parent must not hold the parent's locks, and must not
/// write into its files. The caller opens with O_CLOEXEC.
///
/// One object is for one thread; different objects may be used at the same time. Nothing throws.
class OwnDescriptor {
 public:
  OwnDescriptor() noexcept = default;
  /// Takes `descriptor`; below 0 means none. Where kMost are open already it is closed, and errno is EMFILE.
  explicit OwnDescriptor(int descriptor) noexcept;
  ~OwnDescriptor() { close(); }
  OwnDescriptor(OwnDescriptor&& other) noexcept : place_(std::exchange(other.place_, -1)) {}
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept;

  /// -1: none, or this is a child of the process that opened it.
  [[nodiscard]] int get() const noexcept;
  [[nodiscard]] bool is_open() const noexcept { return get() >= 0; }
  /// False where close(2) failed; errno says why.
  bool close() noexcept;

  static constexpr int kMost = 1024;  ///< at a time in a process

 private:
  int place_ = -1;  ///< in the table that the child's handler reads
};

}  // namespace gradvane::exporters
