#pragma once
// What one read of a tensor yields: the thirteen numbers, and how two parts of one tensor combine.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/host_device.hpp"
#include "kernels/sum_scale.hpp"

namespace gradvane::kernels {

enum class NonfiniteKind : std::uint8_t { nan, pos_inf, neg_inf };
inline constexpr int kNonfiniteKinds = 3;

/// Statistics of one tensor, or of a part of its elements.
///
/// Counts, extrema and the index are exact. `sum`, `sum_abs` and `sum_sq` cover the finite elements
/// only. The first two are held in units of 2^scale_exp, `sum_sq` in units of 2^(2*scale_exp): only
/// fp64 data outside about 2^±500 has a scale_exp other than 0, so that no square over- or underflows.
struct TensorStats {
  std::int64_t numel = 0;
  std::int64_t nan = 0;
  std::int64_t pos_inf = 0;
  std::int64_t neg_inf = 0;
  std::int64_t zero = 0;       ///< +0 and -0
  std::int64_t subnormal = 0;  ///< in the tensor's own dtype
  double sum = 0;
  double sum_abs = 0;  ///< of magnitudes
  double sum_sq = 0;
  double abs_max = 0;  ///< over finite elements; 0 where there is none
  double abs_min_nonzero = std::numeric_limits<double>::infinity();  ///< +Inf where there is none
  std::int64_t first_nonfinite = -1;  ///< smallest linear index in memory order, -1 if none
  std::int32_t scale_exp = 0;         ///< scale_exp_for(abs_max)
  std::int16_t first_kind = -1;       ///< NonfiniteKind of first_nonfinite, -1 if none
  std::int16_t absence = 0;           ///< 0: it was read; else why not, in the caller's numbers

  [[nodiscard]] GRADVANE_HOST_DEVICE std::int64_t nonfinite() const noexcept {
    return nan + pos_inf + neg_inf;
  }
  [[nodiscard]] GRADVANE_HOST_DEVICE std::int64_t finite() const noexcept {
    return numel - nonfinite();
  }
  /// L2 norm of the finite elements; +Inf only where the norm itself is above the range of a double.
  [[nodiscard]] GRADVANE_HOST_DEVICE double norm() const noexcept {
    return ::ldexp(::sqrt(sum_sq), scale_exp);
  }
  /// Sum of the finite elements; ±Inf only where the sum itself is above the range of a double.
  [[nodiscard]] GRADVANE_HOST_DEVICE double total() const noexcept {
    return ::ldexp(sum, scale_exp);
  }
  /// Mean magnitude of the finite elements; 0 where there is none.
  [[nodiscard]] GRADVANE_HOST_DEVICE double mean_magnitude() const noexcept {
    return finite() > 0 ? ::ldexp(sum_abs / static_cast<double>(finite()), scale_exp) : 0;
  }
  /// Bit for bit, so that two paths can be compared.
  friend bool operator==(const TensorStats&, const TensorStats&) = default;
};
static_assert(std::is_trivially_copyable_v<TensorStats>);
static_assert(sizeof(TensorStats) == 104);

/// Adds `next`, which follows `into` in the tensor. Counts, extrema and the first index do not depend
/// on how parts are grouped; the sums do, by rounding: combine in a fixed order for the same bits.
GRADVANE_HOST_DEVICE inline void merge(TensorStats& into, const TensorStats& next) noexcept {
  const double abs_max = into.abs_max < next.abs_max ? next.abs_max : into.abs_max;
  // A part without a non-zero element has sums of 0, right at any scale: rescaling leaves them 0.
  const int scale_exp = scale_exp_for(abs_max);
  into.sum = rescale_sum(into.sum, into.scale_exp, scale_exp) +
             rescale_sum(next.sum, next.scale_exp, scale_exp);
  into.sum_abs = rescale_sum(into.sum_abs, into.scale_exp, scale_exp) +
                 rescale_sum(next.sum_abs, next.scale_exp, scale_exp);
  into.sum_sq = rescale_sum_sq(into.sum_sq, into.scale_exp, scale_exp) +
                rescale_sum_sq(next.sum_sq, next.scale_exp, scale_exp);
  into.scale_exp = scale_exp;
  into.abs_max = abs_max;
  if (next.abs_min_nonzero < into.abs_min_nonzero) into.abs_min_nonzero = next.abs_min_nonzero;

  into.numel += next.numel;
  into.nan += next.nan;
  into.pos_inf += next.pos_inf;
  into.neg_inf += next.neg_inf;
  into.zero += next.zero;
  into.subnormal += next.subnormal;
  if (next.first_nonfinite >= 0 &&
      (into.first_nonfinite < 0 || next.first_nonfinite < into.first_nonfinite)) {
    into.first_nonfinite = next.first_nonfinite;
    into.first_kind = next.first_kind;
  }
}

}  // namespace gradvane::kernels
