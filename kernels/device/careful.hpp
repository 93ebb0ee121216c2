#pragma once
// What the fast path refuses, a vector at a time: NaN and infinity, subnormal numbers, and magnitudes whose
// squares fp32 cannot hold. A run that is sick has nothing else, so this may not be slow.
//
// Everything but counts is in fp64, where nothing of these dtypes needs a scale, and in registers: the plain
// definition, accumulate(), keeps its numbers in memory and looks at each element on its own. On a GPU with few
// fp64 units (a GeForce) these are the limit here, as they were for the plain definition.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/device/group.hpp"
#include "kernels/element.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

namespace detail {

GRADVANE_HOST_DEVICE inline std::uint32_t set_bits(std::uint32_t mask) noexcept {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(mask));
#else
  return static_cast<std::uint32_t>(std::popcount(mask));
#endif
}

/// Of a mask that is not 0.
GRADVANE_HOST_DEVICE inline int lowest_bit(std::uint32_t mask) noexcept {
#if defined(__CUDA_ARCH__)
  return __ffs(static_cast<int>(mask)) - 1;
#else
  return std::countr_zero(mask);
#endif
}

template <DType dtype>
GRADVANE_HOST_DEVICE inline float element_of(const Vector& vector, std::size_t i) noexcept {
  if constexpr (dtype == DType::f32) {
    return __builtin_bit_cast(float, vector.word[i]);
  } else {
    return i % 2 == 0 ? low_value<dtype>(vector.word[i / 2])
                      : high_value<dtype>(vector.word[i / 2]);
  }
}

/// What is finite in some vectors.
template <DType dtype>
struct FiniteSums {
  static_assert(dtype != DType::f64);
  static constexpr std::size_t kElements = sizeof(Vector) / size_in_bytes(dtype);

  double sum = 0;
  double sum_abs = 0;
  double sum_sq = 0;
  float max = 0;
  float min = std::numeric_limits<float>::infinity();
  std::uint32_t zero = 0;
  std::uint32_t below_normal = 0;  ///< zeros among them

  /// Returns which elements are not finite, the first in bit 0: they have been taken for zeros.
  GRADVANE_HOST_DEVICE std::uint32_t add(const Vector& vector) noexcept {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    std::uint32_t nonfinite = 0;
    // By halves: the registers for all of it at once would be missing in the loops that call this.
    constexpr std::size_t kHalf = kElements / 2;
    Vector rest = vector;
    GRADVANE_ROLL
    for (std::size_t begin = 0; begin < kElements; begin += kHalf) {
      GRADVANE_UNROLL
      for (std::size_t i = 0; i < kHalf; ++i) {
        float x = element_of<dtype>(rest, i);
        if (!(::fabsf(x) < kInf)) {
          nonfinite |= 1u << (begin + i);
          x = 0;
        }
        const float magnitude = ::fabsf(x);
        max = ::fmaxf(max, magnitude);
        min = ::fminf(min, magnitude == 0 ? kInf : magnitude);
        zero += magnitude == 0;
        below_normal += magnitude < value<dtype>(Format<dtype>::kMinNormal);
        const double wide = x;
        sum += wide;
        sum_abs += ::fabs(wide);
        sum_sq = ::fma(wide, wide, sum_sq);
      }
      rest.word[0] = rest.word[2];
      rest.word[1] = rest.word[3];
    }
    return nonfinite;
  }

  GRADVANE_HOST_DEVICE void add_to(TensorStats& into) const noexcept {
    into.zero += zero;
    into.subnormal += below_normal - zero;
    if (max > into.abs_max) into.abs_max = max;
    if (min < into.abs_min_nonzero) into.abs_min_nonzero = min;
    into.sum += sum;
    into.sum_abs += sum_abs;
    into.sum_sq += sum_sq;
  }
};

/// @param nonfinite  which elements of the vector are, one at least
/// @param index      of the vector's first element in the tensor
template <DType dtype>
GRADVANE_HOST_DEVICE inline void add_nonfinite(const Vector& vector, std::uint32_t nonfinite,
                                               std::int64_t index, TensorStats& into) noexcept {
  std::uint32_t nan = 0;
  std::uint32_t negative = 0;
  GRADVANE_UNROLL
  for (std::size_t i = 0; i < FiniteSums<dtype>::kElements; ++i) {
    const float x = element_of<dtype>(vector, i);
    nan |= static_cast<std::uint32_t>(x != x) << i;
    negative |= __builtin_bit_cast(std::uint32_t, x) >> 31 << i;
  }
  const std::uint32_t infinite = nonfinite & ~nan;
  into.nan += set_bits(nan);
  into.neg_inf += set_bits(infinite & negative);
  into.pos_inf += set_bits(infinite & ~negative);
  const int at = lowest_bit(nonfinite);
  if (into.first_nonfinite >= 0 && into.first_nonfinite <= index + at) return;
  const NonfiniteKind kind = (nan >> at & 1) != 0        ? NonfiniteKind::nan
                             : (negative >> at & 1) != 0 ? NonfiniteKind::neg_inf
                                                         : NonfiniteKind::pos_inf;
  into.first_nonfinite = index + at;
  into.first_kind = static_cast<std::int16_t>(kind);
}

}  // namespace detail

/// Reads `vectors` vectors that are `stride` bytes apart, the first at `at`; in ascending order. fp32, fp16, bf16. Out
/// of line: its code would be in the way of the loops.
/// @param tensor    its first element
/// @param is_first  nothing was read into `into` yet
/// @return          whether the fast path refuses any of them
template <DType dtype, class Lane>
GRADVANE_OUT_OF_LINE GRADVANE_HOST_DEVICE bool read_carefully(const std::byte* tensor,
                                                              const std::byte* at, int vectors,
                                                              int stride, bool is_first,
                                                              TensorStats& into) noexcept {
  if (is_first) into = TensorStats{};
  bool is_finite = true;
  detail::FiniteSums<dtype> sums;
  GRADVANE_ROLL
  for (int v = 0; v < vectors; ++v, at += stride) {
    const Vector vector = Lane::load(at);
    const std::uint32_t nonfinite = sums.add(vector);
    if (nonfinite == 0) continue;
    is_finite = false;
    sums.zero -= detail::set_bits(nonfinite);
    sums.below_normal -= detail::set_bits(nonfinite);
    detail::add_nonfinite<dtype>(vector, nonfinite, (at - tensor) / size_in_bytes(dtype), into);
  }
  sums.add_to(into);
  return !is_finite ||
         (dtype != DType::f16 && (sums.below_normal != sums.zero || !fits_short_run(sums.max)));
}

}  // namespace gradvane::kernels::device
