#pragma once
// At which scale a sum of squares is safe: fp64 outside the middle of its range is summed scaled
// (J. L. Blue, "A portable Fortran program to find the Euclidean norm of a vector", 1978), and short
// runs are summed in fp32 only in the middle of fp32's range.
#include <cstdint>

#include "kernels/host_device.hpp"

namespace gradvane::kernels {

inline constexpr int kScaleStep = 600;  ///< a scale_exp is -600, 0 or +600

/// Largest magnitudes from 2^-500 to 2^500 are summed as they are: 2^63 squares stay below 2^1024,
/// and what underflows adds less than 2^-75 of the largest square each.
inline constexpr double kUnscaledMin = 0x1p-500;
inline constexpr double kUnscaledMax = 0x1p500;

/// The scale that parts with this largest finite magnitude are summed at. It grows with the magnitude,
/// so merging parts only ever goes up, and in any grouping ends at the same scale.
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr int scale_exp_for(double abs_max) noexcept {
  if (abs_max > kUnscaledMax) return kScaleStep;
  if (abs_max < kUnscaledMin && abs_max > 0) return -kScaleStep;
  return 0;
}

/// 2^-scale_exp: what an element is multiplied by before it is summed at that scale.
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr double element_factor(int scale_exp) noexcept {
  if (scale_exp == 0) return 1;
  return scale_exp > 0 ? 0x1p-600 : 0x1p600;
}

/// Brings a sum to another scale. Down only happens to sums that are 0.
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr double rescale_sum(double sum, int from,
                                                                int to) noexcept {
  for (; from < to; from += kScaleStep) sum *= 0x1p-600;
  return sum;
}
/// The same for a sum of squares. Two factors a step: 2^-1200 is not a double.
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr double rescale_sum_sq(double sum_sq, int from,
                                                                   int to) noexcept {
  for (; from < to; from += kScaleStep) sum_sq = (sum_sq * 0x1p-600) * 0x1p-600;
  return sum_sq;
}

/// A run of at most kShortRun elements a lane is summed in fp32 when its largest finite magnitude is
/// 0 or in here: the sum of squares is then between 2^-80 and 2^80 times their number, and what
/// underflows in it is below 2^-60 of it.
inline constexpr int kShortRun = 16;
inline constexpr double kShortRunMin = 0x1p-40;
inline constexpr double kShortRunMax = 0x1p40;

[[nodiscard]] GRADVANE_HOST_DEVICE constexpr bool fits_short_run(double abs_max) noexcept {
  return abs_max == 0 || (abs_max >= kShortRunMin && abs_max <= kShortRunMax);
}

}  // namespace gradvane::kernels
