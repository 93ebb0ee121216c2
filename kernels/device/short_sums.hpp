#pragma once
// Sums of a few elements of one thread, in fp32.
#include <cmath>
#include <cstddef>

#include "kernels/host_device.hpp"

namespace gradvane::kernels::device::detail {

/// fp32 sums of some vectors, in accumulators of at most sixteen elements. Each starts with its first element: an
/// addition to zero is one instruction more.
template <std::size_t kAccumulators>
struct ShortSums {
  float sum[kAccumulators];
  float sum_abs[kAccumulators];
  float sum_sq[kAccumulators];

  GRADVANE_HOST_DEVICE void start(std::size_t accumulator, float x) noexcept {
    sum[accumulator] = x;
    sum_abs[accumulator] = ::fabsf(x);
    sum_sq[accumulator] = x * x;
  }
  GRADVANE_HOST_DEVICE void add(std::size_t accumulator, float x) noexcept {
    sum[accumulator] += x;
    sum_abs[accumulator] += ::fabsf(x);
    sum_sq[accumulator] = ::fmaf(x, x, sum_sq[accumulator]);
  }
  GRADVANE_HOST_DEVICE void fold() noexcept {
    GRADVANE_UNROLL
    for (std::size_t width = kAccumulators / 2; width > 0; width /= 2) {
      GRADVANE_UNROLL
      for (std::size_t i = 0; i < width; ++i) {
        sum[i] += sum[i + width];
        sum_abs[i] += sum_abs[i + width];
        sum_sq[i] += sum_sq[i + width];
      }
    }
  }
};

/// Multiplies, or does not: not even by 1.
struct Unscaled {
  GRADVANE_HOST_DEVICE static float of(float x) noexcept { return x; }
};
struct Scaled {
  float factor;
  [[nodiscard]] GRADVANE_HOST_DEVICE float of(float x) const noexcept { return x * factor; }
};

}  // namespace gradvane::kernels::device::detail
