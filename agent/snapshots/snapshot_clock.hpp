#pragma once
// When the next snapshot is due: by steps or seconds, and no more often than its cost allows.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "agent/governor/governor.hpp"

namespace gradvane::agent {

/// Moments are seconds on one monotonic clock.
class SnapshotClock {
 public:
  explicit SnapshotClock(const SnapshotPace& pace) : pace_(pace) {}

  [[nodiscard]] bool is_due(std::int64_t step, double now) const noexcept {
    if (!pace_.is_on() || is_too_early(now)) return false;
    if (pace_.is_common) return !first_ || place_of(step) > place_of(tried_);
    if (!last_step_) return true;
    return (pace_.steps > 0 && step - *last_step_ >= pace_.steps) ||
           (pace_.seconds > 0 && now - last_at_ >= pace_.seconds);
  }
  /// An attempt at one, and what it cost the thread that trains.
  void tried(std::int64_t step, double began, double seconds) noexcept {
    note_attempt(step);
    began_ = began;
    cost_ = seconds;
  }
  /// What the latest one cost that thread later on.
  void also_took(double seconds) noexcept { cost_ += seconds; }
  void taken(std::int64_t step, double now) noexcept {
    last_step_ = step;
    last_at_ = now;
    note_attempt(step);
  }
  /// The one that was taken last is lost: another is due.
  void lost() noexcept { last_step_.reset(); }

 private:
  [[nodiscard]] bool is_too_early(double now) const noexcept {
    return pace_.budget > 0 && began_ && now - *began_ < cost_ / pace_.budget;
  }

  void note_attempt(std::int64_t step) noexcept {
    if (!first_) first_ = step;
    tried_ = step;
  }
  [[nodiscard]] std::int64_t place_of(std::int64_t step) const noexcept {
    return (step - *first_) / std::max(pace_.steps, 1);
  }

  SnapshotPace pace_;
  std::optional<std::int64_t> first_;  ///< step of the first attempt
  std::int64_t tried_ = 0;             ///< of the latest
  std::optional<std::int64_t> last_step_;
  double last_at_ = 0;
  std::optional<double> began_;
  double cost_ = 0;
};

}  // namespace gradvane::agent
