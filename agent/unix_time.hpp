#pragma once
// The wall clock as records carry it.
#include <chrono>

namespace gradvane::agent {

/// Seconds since the epoch.
[[nodiscard]] inline double unix_time() noexcept {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace gradvane::agent
