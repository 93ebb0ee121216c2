#pragma once
// What the fast path refuses: NaN and infinity, subnormal numbers, and magnitudes whose squares fp32 cannot hold. A run
// that is sick has nothing else, so this may not be slow.
//
// What is not finite is taken out of the vectors and counted by words, two 16-bit elements at once. What is left is added
// as the fast path does, in fp32, multiplied by a power of two where its largest magnitude is far from 1: that is exact, and
// what underflows then is below 2^-60 of the sums. All is in registers: the plain definition, accumulate(), keeps its numbers
// in memory and looks at each element on its own.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/device/group.hpp"
#include "kernels/element.hpp"
#include "kernels/sum_scale.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

/// The plain definition: `vectors` vectors that are `stride` bytes apart,
/// of `elements` each. Out of line: rare, and long.
/// @param tensor    its first element
/// @param is_first  nothing was read into `into` yet
template <DType dtype>
GRADVANE_OUT_OF_LINE GRADVANE_HOST_DEVICE void read_exactly(const std::byte* tensor,
                                                            const std::byte* at, int elements,
                                                            int vectors, int stride, bool is_first,
                                                            TensorStats& into) noexcept {
  if (is_first) into = TensorStats{};
  for (int v = 0; v < vectors; ++v, at += stride) {
    const std::int64_t index = (at - tensor) / size_in_bytes(dtype);
    const auto* bits = reinterpret_cast<const Bits<dtype>*>(at);
    for (int i = 0; i < elements; ++i) accumulate<dtype>(into, bits[i], index + i);
  }
}

namespace detail {

/// Of a mask that is not 0.
GRADVANE_HOST_DEVICE inline int lowest_bit(std::uint32_t mask) noexcept {
#if defined(__CUDA_ARCH__)
  return __ffs(static_cast<int>(mask)) - 1;
#else
  return std::countr_zero(mask);
#endif
}

/// A word's elements at once: two of a 16-bit dtype, one fp32. An element's sign bit says whether something is true of it.
template <DType dtype>
struct Lanes {
  static_assert(dtype != DType::f64);
  static constexpr int kBits = dtype == DType::f32 ? 32 : 16;
  static constexpr int kPerWord = 32 / kBits;
  static constexpr std::uint32_t kSign = dtype == DType::f32 ? 0x80000000 : kLaneTops;

  static GRADVANE_HOST_DEVICE constexpr std::uint32_t in_each(std::uint32_t bits) noexcept {
    return dtype == DType::f32 ? bits : both(bits);
  }
  /// Whether magnitudes are `least` or larger; other bits than the signs say nothing. No lane carries into the next.
  static GRADVANE_HOST_DEVICE constexpr std::uint32_t reaches(std::uint32_t word,
                                                              std::uint32_t least) noexcept {
    return (word & ~kSign) + (kSign - in_each(least));
  }
  /// All bits of the lanes whose sign bit is set.
  static GRADVANE_HOST_DEVICE std::uint32_t whole(std::uint32_t word) noexcept {
    if constexpr (dtype == DType::f32) {
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(word) >> 31);
    } else {
#if defined(__CUDA_ARCH__)
      std::uint32_t mask;  // each byte the sign of its lane's upper one
      asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(mask) : "r"(word));
      return mask;
#else
      const std::uint32_t signs = word & kSign;
      return (signs - (signs >> (kBits - 1))) | signs;
#endif
    }
  }
  /// How many lanes were set in masks with this sum.
  static GRADVANE_HOST_DEVICE constexpr std::uint32_t count(std::uint32_t sum) noexcept {
    return dtype == DType::f32 ? 0u - sum : set_lanes(sum);
  }
};

/// How many elements of some vectors are something.
struct Nonfinite {
  std::uint32_t all = 0;
  std::uint32_t nan = 0;
  std::uint32_t negative = 0;  ///< -Inf
};

/// Takes what is not finite out of the vectors: zeros are in its place.
template <DType dtype, int kVectors>
GRADVANE_HOST_DEVICE inline Nonfinite take_nonfinite(Vectors<kVectors>& vectors) noexcept {
  using Of = Lanes<dtype>;
  Nonfinite sums;
  GRADVANE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    GRADVANE_UNROLL
    for (std::uint32_t& word : vectors.vector[i].word) {
      const std::uint32_t nonfinite = Of::whole(Of::reaches(word, Format<dtype>::kInf));
      const std::uint32_t nan = Of::whole(Of::reaches(word, Format<dtype>::kInf + 1));
      sums.all += nonfinite;
      sums.nan += nan;
      sums.negative += Of::whole(nonfinite & ~nan & word);
      word &= ~nonfinite;
    }
  }
  return {Of::count(sums.all), Of::count(sums.nan), Of::count(sums.negative)};
}

/// Notes the first element that is not finite in `vectors` vectors that are `stride` bytes apart; there is one. Out of
/// line: once for each thread and part, but where vectors come in another order.
template <DType dtype, class Lane>
GRADVANE_OUT_OF_LINE GRADVANE_HOST_DEVICE void note_first(const std::byte* tensor,
                                                          const std::byte* at, int vectors,
                                                          int stride, TensorStats& into) noexcept {
  using Of = Lanes<dtype>;
  GRADVANE_ROLL
  for (int v = 0; v < vectors; ++v, at += stride) {
    const Vector vector = Lane::load(at);
    std::int64_t index = (at - tensor) / size_in_bytes(dtype);
    GRADVANE_UNROLL
    for (int i = 0; i < 4; ++i, index += Of::kPerWord) {
      const std::uint32_t word = vector.word[i];
      const std::uint32_t found = Of::reaches(word, Format<dtype>::kInf) & Of::kSign;
      if (found == 0) continue;
      const int lane = lowest_bit(found) / Of::kBits;
      if (into.first_nonfinite >= 0 && into.first_nonfinite <= index + lane) return;
      const auto bits = static_cast<Bits<dtype>>(word >> lane * Of::kBits);
      into.first_nonfinite = index + lane;
      into.first_kind = static_cast<std::int16_t>(nonfinite_kind<dtype>(bits));
      return;
    }
  }
}

/// The larger or the smaller magnitude of a packed pair; fp32's own.
template <DType dtype, bool kIsLarger, class Magnitude>
GRADVANE_HOST_DEVICE inline float end_of(Magnitude pair) noexcept {
  if constexpr (dtype == DType::f32) {
    return pair;
  } else {
    const std::uint32_t bits = kIsLarger ? larger_lane(pair) : smaller_lane(pair);
    return value<dtype>(static_cast<std::uint16_t>(bits));
  }
}

/// Whether a largest magnitude may be one that is not finite. Pairs are compared as fp16, so of bf16 all from 2^121 on may be.
template <DType dtype, class Magnitude>
GRADVANE_HOST_DEVICE inline bool is_out_of_order(Magnitude max) noexcept {
  if constexpr (dtype == DType::f32) {
    return !(max <= std::numeric_limits<float>::max());
  } else {
    return ((max + both(0x8000 - 0x7c00)) & kLaneTops) != 0;
  }
}

/// What the sums are multiplied by first, so that neither they nor squares leave fp32's range.
template <DType dtype>
GRADVANE_HOST_DEVICE inline float scale_for(float max) noexcept {
  if constexpr (dtype == DType::f16) return 1;  // its range is smaller
  if (max > static_cast<float>(kShortRunMax)) return 0x1p-80f;
  return max < static_cast<float>(kShortRunMin) ? 0x1p100f : 1;
}

/// What is finite in some vectors. Sums go where they belong at once: registers are scarce here.
template <DType dtype>
struct Finite {
  float max = 0;
  float min = std::numeric_limits<float>::infinity();
  std::uint32_t zero = 0;
  std::uint32_t subnormal = 0;

  /// @param packed_max  the vectors' largest magnitude
  template <int kVectors, class Magnitude>
  GRADVANE_HOST_DEVICE void add(const Vectors<kVectors>& vectors, Magnitude packed_max,
                                TensorStats& into) noexcept {
    const auto small = count_small<dtype, false>(vectors);
    zero += small.zero;
    subnormal += small.subnormal;
    if (packed_max == 0) return;
    const float largest = end_of<dtype, true>(packed_max);
    max = ::fmaxf(max, largest);
    min = ::fminf(min, end_of<dtype, false>(small.min));
    const float scale = scale_for<dtype>(largest);
    const auto sums = sums_of<dtype>(vectors, Scaled{scale});
    const double back = scale == 1 ? 1 : scale > 1 ? 0x1p-100 : 0x1p80;
    into.sum = ::fma(static_cast<double>(sums.sum[0]), back, into.sum);
    into.sum_abs = ::fma(static_cast<double>(sums.sum_abs[0]), back, into.sum_abs);
    into.sum_sq = ::fma(static_cast<double>(sums.sum_sq[0]), back * back, into.sum_sq);
  }

  GRADVANE_HOST_DEVICE void add_to(TensorStats& into) const noexcept {
    into.zero += zero;
    into.subnormal += subnormal;
    if (max > into.abs_max) into.abs_max = max;
    if (min < into.abs_min_nonzero) into.abs_min_nonzero = min;
  }
};

}  // namespace detail

/// Reads `vectors` vectors that are `stride` bytes apart, the first at `at`; in ascending order. fp32,
/// fp16, bf16. Out of line: its code would be in the way of the loops.
/// @param tensor    its first element
/// @return          whether the fast path refuses any of them
template <DType dtype, class Lane>
GRADVANE_OUT_OF_LINE GRADVANE_HOST_DEVICE bool read_carefully(const std::byte* tensor,
                                                              const std::byte* at, int vectors,
                                                              int stride,
                                                              TensorStats& into) noexcept {
  constexpr int kAtOnce = 2;  // the callers' registers are in use too
  constexpr int kElements = sizeof(Vector) / size_in_bytes(dtype);
  // Where a whole warp is here, all of its vectors are on their way to the L2 cache before two are waited for: 1 % (H200).
  if (vectors == kGroup) Lane::prefetch_group(at, stride);
  detail::Finite<dtype> finite;
  bool is_special = false;
  GRADVANE_ROLL
  for (; vectors > 0; vectors -= kAtOnce, at += kAtOnce * stride) {
    Vectors<kAtOnce> some;
    GRADVANE_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      some.vector[i] = i < vectors ? Lane::load(at + i * stride) : Vector{};
    const int here = vectors < kAtOnce ? vectors : kAtOnce;
    auto added = static_cast<std::uint32_t>((kAtOnce - here) * kElements);  // zeros of ours
    auto max = detail::largest<dtype>(some);
    if (detail::is_out_of_order<dtype>(max)) {
      const detail::Nonfinite found = detail::take_nonfinite<dtype>(some);
      max = detail::largest<dtype>(some);
      is_special = true;
      if (dtype == DType::bf16 && detail::is_out_of_order<dtype>(max)) {  // from 2^121 on
        read_exactly<dtype>(tensor, at, kElements, here, stride, false, into);
        continue;
      }
      if (found.all != 0) {
        if (into.first_nonfinite < 0 || at < tensor + into.first_nonfinite * size_in_bytes(dtype))
          detail::note_first<dtype, Lane>(tensor, at, here, stride, into);
        added += found.all;
        into.nan += found.nan;
        into.neg_inf += found.negative;
        into.pos_inf += found.all - found.nan - found.negative;
        // Often, in a run that has broken: nothing is left.
        if (found.all == static_cast<std::uint32_t>(here * kElements)) continue;
      }
    }
    finite.zero -= added;
    finite.add(some, max, into);
  }
  finite.add_to(into);
  return is_special ||
         (dtype != DType::f16 && (finite.subnormal != 0 || !fits_short_run(finite.max)));
}

}  // namespace gradvane::kernels::device
