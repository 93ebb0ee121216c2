#pragma once
// The two clocks of a record.
#include <chrono>

namespace gradvane::record {

/// Seconds since the epoch.
[[nodiscard]] inline double unix_time() noexcept {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Seconds on a clock that never jumps.
[[nodiscard]] inline double monotonic_time() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gradvane::record
