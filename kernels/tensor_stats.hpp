#pragma once
// What one read of a tensor yields: the twelve numbers, and how two parts of one tensor combine.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/host_device.hpp"

namespace gradvane::kernels {

/// Statistics of one tensor, or of a run of its elements.
///
/// Counts, extrema and the index are exact. `sum` and `sum_sq` cover the finite elements only and are
/// held in units of 2^scale_exp and 2^(2*scale_exp): only fp64 data outside about 2^±500 has a
/// scale_exp other than 0, so that no square over- or underflows.
struct TensorStats {
  std::int64_t numel = 0;
  std::int64_t nan = 0;
  std::int64_t pos_inf = 0;
  std::int64_t neg_inf = 0;
  std::int64_t zero = 0;       ///< +0 and -0
  std::int64_t subnormal = 0;  ///< in the tensor's own dtype
  double sum = 0;
  double sum_sq = 0;
  double abs_max = 0;  ///< over finite elements; 0 where there is none
  double abs_min_nonzero = std::numeric_limits<double>::infinity();  ///< +Inf where there is none
  std::int64_t first_nonfinite = -1;  ///< smallest linear index in memory order, -1 if none
  std::int32_t scale_exp = 0;
  std::int32_t reserved = 0;

  [[nodiscard]] GRADVANE_HOST_DEVICE std::int64_t nonfinite() const noexcept {
    return nan + pos_inf + neg_inf;
  }
  [[nodiscard]] GRADVANE_HOST_DEVICE std::int64_t finite() const noexcept {
    return numel - nonfinite();
  }
  /// L2 norm of the finite elements.
  [[nodiscard]] GRADVANE_HOST_DEVICE double norm() const noexcept {
    return std::ldexp(std::sqrt(sum_sq), scale_exp);
  }
};
static_assert(std::is_trivially_copyable_v<TensorStats>);
static_assert(sizeof(TensorStats) == 96);

}  // namespace gradvane::kernels
