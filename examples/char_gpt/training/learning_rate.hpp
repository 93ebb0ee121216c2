#pragma once
// Warm-up, then half a cosine: the usual schedule for a transformer.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace char_gpt {

/// The rate for `step`, counted from 1, of a run of `steps`: rises over the first tenth of the run (at
/// most 100 steps) to `peak`, then falls to a tenth of it.
[[nodiscard]] inline double learning_rate(std::int64_t step, std::int64_t steps, double peak) {
  const double warm_up = static_cast<double>(std::clamp<std::int64_t>(steps / 10, 1, 100));
  const double now = static_cast<double>(step);
  if (now <= warm_up) return peak * now / warm_up;
  const double progress = (now - warm_up) / std::max(1.0, static_cast<double>(steps) - warm_up);
  return peak * (0.1 + 0.45 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, progress))));
}

}  // namespace char_gpt
