#pragma once
// One element, looked at through its bits: what it is, what it is worth, and how it is counted. No
// floating-point comparison decides anything here, so no compiler flag or rounding mode can either.
#include <cmath>
#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/host_device.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels {

/// The layout of a dtype: sign, exponent, mantissa.
template <DType dtype>
struct Format;

template <>
struct Format<DType::f32> {
  using Bits = std::uint32_t;
  static constexpr Bits kAbsMask = 0x7fffffff;
  static constexpr Bits kInf = 0x7f800000;
  static constexpr Bits kMinNormal = 0x00800000;
};
template <>
struct Format<DType::f64> {
  using Bits = std::uint64_t;
  static constexpr Bits kAbsMask = 0x7fffffffffffffff;
  static constexpr Bits kInf = 0x7ff0000000000000;
  static constexpr Bits kMinNormal = 0x0010000000000000;
};
template <>
struct Format<DType::f16> {
  using Bits = std::uint16_t;
  static constexpr Bits kAbsMask = 0x7fff;
  static constexpr Bits kInf = 0x7c00;
  static constexpr Bits kMinNormal = 0x0400;
};
template <>
struct Format<DType::bf16> {
  using Bits = std::uint16_t;
  static constexpr Bits kAbsMask = 0x7fff;
  static constexpr Bits kInf = 0x7f80;
  static constexpr Bits kMinNormal = 0x0080;
};

template <DType dtype>
using Bits = typename Format<dtype>::Bits;

/// The order is that of magnitudes, NaN last.
enum class ElementClass : std::uint8_t { zero, subnormal, normal, infinity, nan };

template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr ElementClass classify(Bits<dtype> bits) noexcept {
  const auto magnitude = static_cast<Bits<dtype>>(bits & Format<dtype>::kAbsMask);
  if (magnitude > Format<dtype>::kInf) return ElementClass::nan;
  if (magnitude == Format<dtype>::kInf) return ElementClass::infinity;
  if (magnitude >= Format<dtype>::kMinNormal) return ElementClass::normal;
  return magnitude == 0 ? ElementClass::zero : ElementClass::subnormal;
}

template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr bool is_negative(Bits<dtype> bits) noexcept {
  return (bits & static_cast<Bits<dtype>>(~Format<dtype>::kAbsMask)) != 0;
}

/// Of an element that is infinite or NaN.
template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr NonfiniteKind nonfinite_kind(
    Bits<dtype> bits) noexcept {
  if (classify<dtype>(bits) == ElementClass::nan) return NonfiniteKind::nan;
  return is_negative<dtype>(bits) ? NonfiniteKind::neg_inf : NonfiniteKind::pos_inf;
}

/// The value, exactly. `float` holds every fp32, fp16 and bf16.
template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr auto value(Bits<dtype> bits) noexcept {
  if constexpr (dtype == DType::f64) {
    return __builtin_bit_cast(double, bits);
  } else if constexpr (dtype == DType::f32) {
    return __builtin_bit_cast(float, bits);
  } else if constexpr (dtype == DType::bf16) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  } else {
    const std::uint32_t magnitude = bits & Format<DType::f16>::kAbsMask;
    const std::uint32_t sign = static_cast<std::uint32_t>(bits ^ magnitude) << 16;
    if (magnitude < Format<DType::f16>::kMinNormal) {  // a whole number of 2^-24, 0 included
      const float small = static_cast<float>(magnitude) * 0x1p-24f;
      return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, small) | sign);
    }
    // Ten bits of mantissa move up to 23; the exponent's bias goes from 15 to 127, Inf's to Inf's.
    const std::uint32_t rebias = magnitude >= Format<DType::f16>::kInf ? 224u : 112u;
    return __builtin_bit_cast(float, sign | ((magnitude << 13) + (rebias << 23)));
  }
}

/// Adds one element with its linear index in the tensor: exact counts, sums in fp64. This is the plain
/// definition of the statistics; the pass adds runs of elements and must agree up to rounding of sums.
template <DType dtype>
GRADVANE_HOST_DEVICE inline void accumulate(TensorStats& stats, Bits<dtype> bits,
                                            std::int64_t index) noexcept {
  ++stats.numel;
  const ElementClass kind = classify<dtype>(bits);
  if (kind >= ElementClass::infinity) {
    const NonfiniteKind nonfinite = nonfinite_kind<dtype>(bits);
    stats.nan += nonfinite == NonfiniteKind::nan;
    stats.pos_inf += nonfinite == NonfiniteKind::pos_inf;
    stats.neg_inf += nonfinite == NonfiniteKind::neg_inf;
    if (stats.first_nonfinite < 0 || index < stats.first_nonfinite) {
      stats.first_nonfinite = index;
      stats.first_kind = static_cast<std::int16_t>(nonfinite);
    }
    return;
  }
  if (kind == ElementClass::zero) {
    ++stats.zero;
    return;
  }
  stats.subnormal += kind == ElementClass::subnormal;

  const double x = value<dtype>(bits);
  const double magnitude = value<dtype>(static_cast<Bits<dtype>>(bits & Format<dtype>::kAbsMask));
  if (magnitude > stats.abs_max) {
    stats.abs_max = magnitude;
    const int scale_exp = scale_exp_for(magnitude);
    if (scale_exp != stats.scale_exp) {
      stats.sum = rescale_sum(stats.sum, stats.scale_exp, scale_exp);
      stats.sum_abs = rescale_sum(stats.sum_abs, stats.scale_exp, scale_exp);
      stats.sum_sq = rescale_sum_sq(stats.sum_sq, stats.scale_exp, scale_exp);
      stats.scale_exp = scale_exp;
    }
  }
  if (magnitude < stats.abs_min_nonzero) stats.abs_min_nonzero = magnitude;
  const double scaled = x * element_factor(stats.scale_exp);
  stats.sum += scaled;
  stats.sum_abs += ::fabs(scaled);
  stats.sum_sq = ::fma(scaled, scaled, stats.sum_sq);
}

}  // namespace gradvane::kernels
