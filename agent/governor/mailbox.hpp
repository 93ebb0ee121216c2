#pragma once
// From one thread to another, in order.
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace gradvane::agent {

/// Any thread. take() costs one load where nothing came.
template <typename T>
class Mailbox {
 public:
  /// Lost if there is no memory for it.
  void put(T thing) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      things_.push_back(std::move(thing));
      has_any_.store(true, std::memory_order_release);
    } catch (...) {
    }
  }
  /// Those since the last call, the oldest first.
  [[nodiscard]] std::vector<T> take() {
    if (!has_any_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    has_any_.store(false, std::memory_order_relaxed);
    return std::exchange(things_, {});
  }

 private:
  std::atomic<bool> has_any_{false};
  std::mutex mutex_;  ///< held for moments only
  std::vector<T> things_;
};

}  // namespace gradvane::agent
