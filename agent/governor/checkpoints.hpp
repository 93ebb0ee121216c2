#pragma once
// Which checkpoints the training has written: an incident names the last good one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace gradvane::agent {

/// The latest of them, by run step. Any thread.
class Checkpoints {
 public:
  Checkpoints() { steps_.reserve(kMost); }

  void note(std::int64_t run_step) noexcept {
    const std::lock_guard lock(mutex_);
    if (steps_.size() == kMost) steps_.erase(steps_.begin());
    steps_.push_back(run_step);  // there is room: it was reserved
  }
  /// The latest that was written at `run_step` or before.
  [[nodiscard]] std::optional<std::int64_t> before(std::int64_t run_step) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(steps_.rbegin(), steps_.rend(),
                                    [&](std::int64_t step) { return step <= run_step; });
    return found == steps_.rend() ? std::nullopt : std::optional(*found);
  }

 private:
  static constexpr std::size_t kMost = 64;

  mutable std::mutex mutex_;  ///< held for moments only
  std::vector<std::int64_t> steps_;
};

}  // namespace gradvane::agent
