#pragma once
// The policy that holds now, and the one that is to hold from the next step on.
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "agent/ranks/policy.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::agent {

/// Threading: follow() and take_wanted() from the thread that trains, between two steps; want() and take_of_ranks() from the
/// worker's; all else from any.
class PolicyInForce {
 public:
  explicit PolicyInForce(const ranks::Policy& policy) noexcept { set(policy); }

  [[nodiscard]] NonfinitePolicy on_nonfinite() const noexcept {
    return on_nonfinite_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] DivergencePolicy on_divergence() const noexcept {
    return on_divergence_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] int skip_limit() const noexcept {
    return skip_limit_.load(std::memory_order_relaxed);
  }
  /// Largest norm of a step that is taken; 0: any.
  [[nodiscard]] double norm_bound() const noexcept {
    return on_nonfinite() == NonfinitePolicy::skip ? skip_norm_.load(std::memory_order_relaxed) : 0;
  }
  [[nodiscard]] ranks::Policy all() const noexcept {
    return {on_nonfinite(), on_divergence(), skip_limit(),
            skip_norm_.load(std::memory_order_relaxed)};
  }

  /// Whether an incident of that class leads to something. `is_late`: its steps were not judged in time.
  [[nodiscard]] bool acts_on(record::IncidentClass kind, bool is_late) const noexcept {
    if (record::is_divergence(kind)) return on_divergence() != DivergencePolicy::watch;
    const NonfinitePolicy policy = on_nonfinite();
    return record::is_nonfinite(kind) && is_late &&
           (policy == NonfinitePolicy::stop || policy == NonfinitePolicy::rollback);
  }

  void want(const ranks::Policy& policy) noexcept {
    const std::lock_guard lock(mutex_);
    wanted_ = policy;
    has_wanted_.store(true, std::memory_order_release);
  }
  void take_wanted() noexcept {
    if (!has_wanted_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    has_wanted_.store(false, std::memory_order_relaxed);
    if (const auto wanted = std::exchange(wanted_, std::nullopt)) set(*wanted);
  }

  /// Rank 0's policy.
  void follow(const ranks::Policy& policy) noexcept {
    if (policy == all()) return;
    set(policy);
    const std::lock_guard lock(mutex_);
    of_ranks_ = policy;
  }
  /// Rank 0's, if it has come to hold here since the last call.
  [[nodiscard]] std::optional<ranks::Policy> take_of_ranks() noexcept {
    const std::lock_guard lock(mutex_);
    return std::exchange(of_ranks_, std::nullopt);
  }

 private:
  void set(const ranks::Policy& policy) noexcept {
    on_nonfinite_.store(policy.on_nonfinite, std::memory_order_relaxed);
    on_divergence_.store(policy.on_divergence, std::memory_order_relaxed);
    skip_limit_.store(policy.skip_limit, std::memory_order_relaxed);
    skip_norm_.store(policy.skip_norm, std::memory_order_relaxed);
  }

  std::atomic<NonfinitePolicy> on_nonfinite_;
  std::atomic<DivergencePolicy> on_divergence_;
  std::atomic<int> skip_limit_;
  std::atomic<double> skip_norm_;
  std::atomic<bool> has_wanted_{false};
  std::mutex mutex_;  ///< guards what follows; held for moments only
  std::optional<ranks::Policy> wanted_;
  std::optional<ranks::Policy> of_ranks_;
};

}  // namespace gradvane::agent
