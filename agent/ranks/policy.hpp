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

  bool operator==(const Policy&) const = default;
};

[[nodiscard]] inline Policy policy_of(const Options& options) noexcept {
  return {options.on_nonfinite, options.on_divergence, options.skip_limit, options.skip_norm};
}

}  // namespace gradvane::agent::ranks
