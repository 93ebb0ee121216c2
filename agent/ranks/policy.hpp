#pragma once
// What acts on a bad step, as far as it may change while a run lasts.
#include <cstdint>

#include "agent/include/gradvane/options.hpp"

namespace gradvane::agent::ranks {

/// The options of these names. Ranks that agree have rank 0's.
struct Policy {
  NonfinitePolicy on_nonfinite = NonfinitePolicy::watch;
  DivergencePolicy on_divergence = DivergencePolicy::watch;
  std::int32_t skip_limit = 1;
  double skip_norm = 0;

  /// Any of both does more than to watch.
  [[nodiscard]] bool acts() const noexcept {
    return on_nonfinite != NonfinitePolicy::watch || on_divergence != DivergencePolicy::watch;
  }
  [[nodiscard]] bool rolls_back() const noexcept {
    return on_nonfinite == NonfinitePolicy::rollback || on_divergence == DivergencePolicy::rollback;
  }

  bool operator==(const Policy&) const = default;
};

[[nodiscard]] inline Policy policy_of(const Options& options) noexcept {
  return {options.on_nonfinite, options.on_divergence, options.skip_limit, options.skip_norm};
}

inline void set_policy(Options& options, const Policy& policy) noexcept {
  options.on_nonfinite = policy.on_nonfinite;
  options.on_divergence = policy.on_divergence;
  options.skip_limit = policy.skip_limit;
  options.skip_norm = policy.skip_norm;
}

}  // namespace gradvane::agent::ranks
