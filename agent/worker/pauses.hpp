#pragma once
// Evaluations and checkpoints: time in which no step is expected to end.
#include <chrono>
#include <mutex>

namespace gradvane::agent {

/// What the stall clock leaves out. Threading: any thread; a lock is held to copy a few words.
class Pauses {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param longest_seconds  a pause counts for no more than this, so that one that hangs is a stall in the end
  explicit Pauses(double longest_seconds) noexcept : longest_(longest_seconds) {}

  /// As the constructor's.
  void set_longest(double seconds) noexcept {
    const std::lock_guard lock(mutex_);
    longest_ = seconds;
  }
  /// +1 where a pause begins, -1 where it ends. Pauses that overlap are one.
  void change(int delta, Clock::time_point now) noexcept;
  /// Seconds of all pauses up to `now`. The difference of two calls is what to leave out between them.
  [[nodiscard]] double seconds(Clock::time_point now) const noexcept;

 private:
  [[nodiscard]] double current(Clock::time_point now) const noexcept;

  mutable std::mutex mutex_;  ///< guards what follows
  double longest_;
  int open_ = 0;
  Clock::time_point began_;  ///< if one is open
  double ended_ = 0;         ///< seconds of those that have ended
};

}  // namespace gradvane::agent
