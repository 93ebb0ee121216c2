#pragma once
// The arithmetic of one thread over a group of eight 16-byte vectors, all loaded before the first is
// used. It tries the common case: nothing but normal numbers and zeros, whose squares fp32 can hold.
// Anything else it refuses, having changed nothing: then the group is read again (part_reader.hpp).
//
// Sums of fp32, fp16 and bf16 are taken in fp32 over sixteen elements an accumulator, folded and added to
// the thread's fp64 sums. Their rounding: at most 16 additions and 2 folds, 18 * 2^-24 = 1.1e-6 of a
// sum of squares or of magnitudes, half of that of a norm.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/device/packed.hpp"
#include "kernels/device/short_sums.hpp"
#include "kernels/device/tally.hpp"
#include "kernels/element.hpp"
#include "kernels/sum_scale.hpp"

namespace gradvane::kernels::device {

inline constexpr int kGroup = 8;

/// Of `count` elements at `at`, aligned to their size: those in front of the first whole vector.
template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE inline std::int64_t elements_before(
    const std::byte* at, std::int64_t count) noexcept {
  constexpr int kVectorBytes = sizeof(Vector);
  const auto over = static_cast<int>(reinterpret_cast<std::uintptr_t>(at) % kVectorBytes);
  const std::int64_t before = over == 0 ? 0 : (kVectorBytes - over) / size_in_bytes(dtype);
  return before < count ? before : count;
}

namespace detail {

/// The sum of squares of a group whose largest magnitude is 2^-40: below, fp32 lost too much.
inline constexpr float kShortSumMin = 0x1p-80f;

/// A function, for the compiler of CUDA 13.0 fails at the built-in one where it may be a constant.
GRADVANE_HOST_DEVICE inline float float_of(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}

/// NaN if either is: fp32 and fp64 on the device have an instruction for the first.
GRADVANE_HOST_DEVICE inline float max_nan(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return std::isnan(a) || a > b ? a : b;
#endif
}

/// The low half of `word` as fp16 or bf16; the high one.
template <DType dtype>
GRADVANE_HOST_DEVICE inline float low_value(std::uint32_t word) noexcept {
#if defined(__CUDA_ARCH__)
  if constexpr (dtype == DType::f16) {
    float result;
    asm("{.reg .f16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}"
        : "=f"(result)
        : "r"(word));
    return result;
  }
#endif
  return value<dtype>(static_cast<std::uint16_t>(word));
}
template <DType dtype>
GRADVANE_HOST_DEVICE inline float high_value(std::uint32_t word) noexcept {
#if defined(__CUDA_ARCH__)
  if constexpr (dtype == DType::f16) {
    float result;
    asm("{.reg .f16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}"
        : "=f"(result)
        : "r"(word));
    return result;
  }
  return float_of(word & 0xffff0000);
#endif
  return value<dtype>(static_cast<std::uint16_t>(word >> 16));
}

}  // namespace detail

/// Some vectors of one thread.
template <int kVectors>
  requires(kVectors > 0)
struct Vectors {
  Vector vector[std::size_t{kVectors}];
};
using Group = Vectors<kGroup>;

/// A warp's group lies in 32 lines of 128 bytes, four for each vector of its lanes, which are `stride` bytes apart: where the
/// line of this number is, from the first byte of the group.
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr int line_of_group(int number, int stride) noexcept {
  constexpr int kLines = 4;
  return number / kLines * stride + number % kLines * 128;
}

// The three steps of reading a group. Their order in the source is that of the data's way through the
// machine: everything waits for the loads, nothing else for anything rare.

/// The smallest magnitude, zeros included; in the form that Tally keeps. fp32, fp16, bf16.
template <DType dtype, int kVectors>
GRADVANE_HOST_DEVICE inline auto smallest(const Vectors<kVectors>& group) noexcept {
  if constexpr (dtype == DType::f32) {
    float min = std::numeric_limits<float>::infinity();
    GRADVANE_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      GRADVANE_UNROLL
      for (int j = 0; j < 4; ++j) {
        min = ::fminf(min, ::fabsf(detail::float_of(group.vector[i].word[j])));
      }
    }
    return min;
  } else {
    std::uint32_t min = kPackedInf;
    GRADVANE_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      GRADVANE_UNROLL
      for (int j = 0; j < 4; ++j) min = packed_min(min, packed_abs(group.vector[i].word[j]));
    }
    return min;
  }
}

/// Whether a smallest magnitude is zero or subnormal.
template <DType dtype, class Magnitude>
GRADVANE_HOST_DEVICE inline bool below_normal(Magnitude min) noexcept {
  if constexpr (dtype == DType::f32) {
    return min < std::numeric_limits<float>::min();
  } else if constexpr (dtype == DType::f64) {
    return min < std::numeric_limits<double>::min();
  } else {  // the top bit of a lane: at or above the smallest normal number
    return ((min + both(0x8000 - Format<dtype>::kMinNormal)) & kLaneTops) != kLaneTops;
  }
}

/// A group's zeros and subnormal numbers.
template <class Magnitude>
struct Small {
  Magnitude min;  ///< of the non-zero ones
  std::uint32_t zero = 0;
  std::uint32_t subnormal = 0;
  bool refused = false;  ///< holds subnormal numbers of a kind that is read exactly
};

/// fp32, fp16, bf16.
/// @tparam kRefuses  whether subnormal numbers are refused, not counted
template <DType dtype, bool kRefuses = dtype != DType::f16, int kVectors>
GRADVANE_HOST_DEVICE inline auto count_small(const Vectors<kVectors>& group) noexcept {
  if constexpr (dtype == DType::f32) {
    Small<float> small{std::numeric_limits<float>::infinity()};
    GRADVANE_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      GRADVANE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float magnitude = ::fabsf(detail::float_of(group.vector[i].word[j]));
        if constexpr (!kRefuses) small.subnormal += magnitude < std::numeric_limits<float>::min();
        if (magnitude == 0) {
          ++small.zero;
        } else {
          small.min = ::fminf(small.min, magnitude);
        }
      }
    }
    if constexpr (kRefuses)
      small.refused = below_normal<dtype>(small.min);
    else
      small.subnormal -= small.zero;
    return small;
  } else {
    Small<std::uint32_t> small{kPackedInf};
    std::uint32_t masks = 0;
    GRADVANE_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      GRADVANE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t word = group.vector[i].word[j];
        const std::uint32_t mask = packed_zero_mask(word);
        masks += mask;
        small.min =
            packed_min(small.min, packed_abs(word | mask));  // a zero becomes NaN, and loses
      }
    }
    small.zero = set_lanes(masks);
    if (below_normal<dtype>(small.min)) [[unlikely]] {
      if constexpr (kRefuses) {
        small.refused = true;
      } else {  // common in fp16
        masks = 0;
        GRADVANE_UNROLL
        for (int i = 0; i < kVectors; ++i) {
          GRADVANE_UNROLL
          for (int j = 0; j < 4; ++j) {
            const std::uint32_t magnitude = packed_abs(group.vector[i].word[j]);
            masks += packed_below_mask(magnitude, both(Format<dtype>::kMinNormal));
          }
        }
        small.subnormal = set_lanes(masks) - small.zero;
      }
    }
    return small;
  }
}

namespace detail {

template <DType dtype, int kVectors, class Scale = Unscaled>
  requires(dtype == DType::f16 || dtype == DType::bf16)
GRADVANE_HOST_DEVICE inline auto sums_of(const Vectors<kVectors>& group,
                                         Scale scale = {}) noexcept {
  ShortSums<4> sums;
  GRADVANE_UNROLL
  for (std::size_t j = 0; j < 2; ++j) {
    sums.start(2 * j, scale.of(low_value<dtype>(group.vector[0].word[j])));
    sums.start(2 * j + 1, scale.of(high_value<dtype>(group.vector[0].word[j])));
  }
  GRADVANE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    GRADVANE_UNROLL
    for (std::size_t j = i == 0 ? 2 : 0; j < 4; ++j) {
      sums.add(j % 2 * 2, scale.of(low_value<dtype>(group.vector[i].word[j])));
      sums.add(j % 2 * 2 + 1, scale.of(high_value<dtype>(group.vector[i].word[j])));
    }
  }
  sums.fold();
  return sums;
}

template <DType dtype, int kVectors, class Scale = Unscaled>
  requires(dtype == DType::f32)
GRADVANE_HOST_DEVICE inline auto sums_of(const Vectors<kVectors>& group,
                                         Scale scale = {}) noexcept {
  ShortSums<2> sums;
  sums.start(0, scale.of(float_of(group.vector[0].word[0])));
  sums.start(1, scale.of(float_of(group.vector[0].word[1])));
  GRADVANE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    GRADVANE_UNROLL
    for (std::size_t j = i == 0 ? 2 : 0; j < 4; ++j) {
      sums.add(j % 2, scale.of(float_of(group.vector[i].word[j])));
    }
  }
  sums.fold();
  return sums;
}

/// The largest magnitude, NaN where there is one; and whether fp32 can hold the squares.
template <DType dtype, int kVectors>
GRADVANE_HOST_DEVICE inline auto largest(const Vectors<kVectors>& group) noexcept {
  if constexpr (dtype == DType::f32) {
    float max = 0;
    GRADVANE_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      GRADVANE_UNROLL
      for (int j = 0; j < 4; ++j) {
        max = max_nan(max, ::fabsf(detail::float_of(group.vector[i].word[j])));
      }
    }
    return max;
  } else {
    std::uint32_t max = 0;
    GRADVANE_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      GRADVANE_UNROLL
      for (int j = 0; j < 4; ++j) max = packed_max_nan(max, packed_abs(group.vector[i].word[j]));
    }
    return max;
  }
}
template <DType dtype, class Magnitude>
GRADVANE_HOST_DEVICE inline bool too_large(Magnitude max) noexcept {
  if constexpr (dtype == DType::f32) {
    return !(max <= static_cast<float>(kShortRunMax));  // also NaN
  } else {
    constexpr std::uint32_t kLargest =
        dtype == DType::f16
            ? Format<dtype>::kInf - 1
            : __builtin_bit_cast(std::uint32_t, static_cast<float>(kShortRunMax)) >> 16;
    return ((max + both(0x7fff - kLargest)) & kLaneTops) != 0;
  }
}

template <DType dtype>
GRADVANE_HOST_DEVICE inline void raise_extremes(Tally<dtype>& tally, std::uint32_t max,
                                                std::uint32_t min) noexcept {
  tally.max = packed_max_nan(tally.max, max);
  tally.min = packed_min(tally.min, min);
}
GRADVANE_HOST_DEVICE inline void raise_extremes(Tally<DType::f32>& tally, float max,
                                                float min) noexcept {
  tally.max = ::fmaxf(tally.max, max);
  tally.min = ::fminf(tally.min, min);
}

}  // namespace detail

/// Adds a group's largest magnitude and sums, and its smallest as given. False where the group must be
/// read exactly; then `tally` is as it was.
template <DType dtype, class Magnitude>
GRADVANE_HOST_DEVICE inline bool add_sums(const Group& group, Magnitude min,
                                          Tally<dtype>& tally) noexcept {
  const auto max = detail::largest<dtype>(group);
  if (detail::too_large<dtype>(max)) [[unlikely]] {
    return false;
  }
  const auto sums = detail::sums_of<dtype>(group);
  if constexpr (dtype != DType::f16) {
    if (sums.sum_sq[0] < detail::kShortSumMin && max != 0) [[unlikely]] {
      return false;
    }
  }
  tally.sum += static_cast<double>(sums.sum[0]);
  tally.sum_abs += static_cast<double>(sums.sum_abs[0]);
  tally.sum_sq += static_cast<double>(sums.sum_sq[0]);
  detail::raise_extremes(tally, max, min);
  return true;
}

/// All three steps. False where the group must be read exactly; then `tally` is as it was.
/// @param padding  elements of the group that are zeros of ours, not of the tensor
/// @param found    whether there were zeros or subnormal numbers
template <DType dtype>
  requires(dtype != DType::f64)
GRADVANE_HOST_DEVICE inline bool add_counting(const Group& group, std::uint32_t padding,
                                              bool& found, Tally<dtype>& tally) noexcept {
  const auto small = count_small<dtype>(group);
  found = small.zero + small.subnormal != 0;
  if (small.refused || !add_sums<dtype>(group, small.min, tally)) return false;
  tally.zero += small.zero - padding;
  if constexpr (dtype == DType::f16) tally.subnormal += small.subnormal;
  return true;
}

/// fp64 is bound by memory all the more: zeros are always counted.
template <DType dtype>
  requires(dtype == DType::f64)
GRADVANE_HOST_DEVICE inline bool add_counting(const Group& group, std::uint32_t padding,
                                              bool& found, Tally<dtype>& tally) noexcept {
  found = true;
  double max = 0;
  double min = std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_abs = 0;
  double sum_sq = 0;
  std::uint32_t zero = 0;
  bool finite = true;
  GRADVANE_UNROLL
  for (int i = 0; i < kGroup; ++i) {
    GRADVANE_UNROLL
    for (int j = 0; j < 4; j += 2) {
      const std::uint64_t high = group.vector[i].word[j + 1];
      const double x = __builtin_bit_cast(double, high << 32 | group.vector[i].word[j]);
      const double magnitude = ::fabs(x);
      finite = finite && magnitude < std::numeric_limits<double>::infinity();
      max = magnitude > max ? magnitude : max;
      min = magnitude != 0 && magnitude < min ? magnitude : min;
      zero += magnitude == 0;
      sum += x;
      sum_abs += magnitude;
      sum_sq = ::fma(x, x, sum_sq);
    }
  }
  // At another scale, or with something to count: exactly.
  if (!finite || scale_exp_for(max) != 0 || below_normal<dtype>(min)) [[unlikely]] {
    return false;
  }
  tally.sum += sum;
  tally.sum_abs += sum_abs;
  tally.sum_sq += sum_sq;
  tally.max = max > tally.max ? max : tally.max;
  tally.min = min < tally.min ? min : tally.min;
  tally.zero += zero - padding;
  return true;
}

}  // namespace gradvane::kernels::device
