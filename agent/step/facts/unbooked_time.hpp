#pragma once
// Phases within phases, each time counted once.
#include <algorithm>
#include <chrono>

namespace gradvane::agent {

/// A clock of each thread that leaves out what has been booked: the phases that have ended and the agent's own time.
/// So a phase that began and ends by this clock has the time that is not an inner phase's.
class UnbookedTime {
 public:
  using Clock = std::chrono::steady_clock;

  /// What this thread's clock shows at `moment`.
  [[nodiscard]] static Clock::duration at(Clock::time_point moment) noexcept {
    return moment.time_since_epoch() - booked_;
  }
  static void book(Clock::duration time) noexcept { booked_ += time; }
  /// Books what lies between `began`, as at() had it on this thread, and `end`; returns it.
  [[nodiscard]] static Clock::duration book_since(Clock::duration began,
                                                  Clock::time_point end) noexcept {
    // Phases that do not nest would otherwise take time back.
    const Clock::duration time = std::max(at(end) - began, Clock::duration::zero());
    book(time);
    return time;
  }

 private:
  static thread_local constinit Clock::duration booked_;  // NOLINT(readability-identifier-naming)
};

inline thread_local constinit UnbookedTime::Clock::duration UnbookedTime::booked_{};

}  // namespace gradvane::agent
