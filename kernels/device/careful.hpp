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
  /// Whether magnitudes are `least` or larger. No lane carries into the next.
  static GRADVANE_HOST_DEVICE constexpr std::uint32_t at_least(std::uint32_t word,
                                                               std::uint32_t least) noexcept {
    return ((word & ~kSign) + (kSign - in_each(least))) & kSign;
  }
  /// All bits of the lanes whose sign bit is set.
  static GRADVANE_HOST_DEVICE constexpr std::uint32_t whole(std::uint32_t signs) noexcept {
    return (signs - (signs >> (kBits - 1))) | signs;
  }
};

/// Which elements of a vector are something: the sign bits of word i's lanes, shifted right by i.
struct Found {
  std::uint32_t nonfinite = 0;
  std::uint32_t nan = 0;
  std::uint32_t negative = 0;  ///< -Inf
};

/// Whether any element is not finite.
template <DType dtype>
GRADVANE_HOST_DEVICE inline bool is_any_nonfinite(const Vector& vector) noexcept {
  std::uint32_t found = 0;
  GRADVANE_UNROLL
  for (int i = 0; i < 4; ++i) found |= Lanes<dtype>::at_least(vector.word[i], Format<dtype>::kInf);
  return found != 0;
}

/// Takes what is not finite out of the vector: zeros are in its place.
template <DType dtype>
GRADVANE_HOST_DEVICE inline Found take_nonfinite(Vector& vector) noexcept {
  using Of = Lanes<dtype>;
  Found found;
  GRADVANE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = vector.word[i];
    const std::uint32_t nonfinite = Of::at_least(word, Format<dtype>::kInf);
    const std::uint32_t nan = Of::at_least(word, Format<dtype>::kInf + 1);
    found.nonfinite |= nonfinite >> i;
    found.nan |= nan >> i;
    found.negative |= ((nonfinite ^ nan) & word) >> i;
    vector.word[i] = word & ~Of::whole(nonfinite);
  }
  return found;
}

/// What is finite in some vectors.
template <DType dtype>
struct FiniteSums {
  static constexpr std::size_t kElements = sizeof(Vector) / size_in_bytes(dtype);

  double sum = 0;
  double sum_abs = 0;
  double sum_sq = 0;
  float max = 0;
  float min = std::numeric_limits<float>::infinity();
  std::uint32_t zero = 0;
  std::uint32_t below_normal = 0;  ///< zeros among them

  /// All of whose elements are finite.
  GRADVANE_HOST_DEVICE void add(Vector vector) noexcept {
    // By halves: the registers for all of it at once would be missing in the loops that call this.
    GRADVANE_ROLL
    for (int half = 0; half < 2; ++half) {
      GRADVANE_UNROLL
      for (std::size_t i = 0; i < kElements / 2; ++i) {
        const float x = element_of<dtype>(vector, i);
        const float magnitude = ::fabsf(x);
        max = ::fmaxf(max, magnitude);
        min = ::fminf(min, magnitude == 0 ? std::numeric_limits<float>::infinity() : magnitude);
        zero += magnitude == 0;
        below_normal += magnitude < value<dtype>(Format<dtype>::kMinNormal);
        const double wide = x;
        sum += wide;
        sum_abs += ::fabs(wide);
        sum_sq = ::fma(wide, wide, sum_sq);
      }
      vector.word[0] = vector.word[2];
      vector.word[1] = vector.word[3];
    }
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

/// How much is not finite in some vectors of one group, in one register: they are scarce here.
struct NonfiniteCounts {
  static_assert(kGroup * sizeof(Vector) / 2 < 256);
  std::uint32_t packed = 0;  ///< NaN, -Inf, all

  GRADVANE_HOST_DEVICE void add(std::uint32_t all, std::uint32_t nan,
                                std::uint32_t negative) noexcept {
    packed += all << 16 | negative << 8 | nan;
  }
  GRADVANE_HOST_DEVICE void add_to(TensorStats& into) const noexcept {
    const std::uint32_t nan = packed & 0xff;
    const std::uint32_t negative = packed >> 8 & 0xff;
    into.nan += nan;
    into.neg_inf += negative;
    into.pos_inf += (packed >> 16) - nan - negative;
  }
};

/// Of a vector with something in it that is not finite.
/// @param index  of the vector's first element in the tensor
template <DType dtype>
GRADVANE_HOST_DEVICE inline void note_first(const Vector& vector, std::int64_t index,
                                            TensorStats& into) noexcept {
  using Of = Lanes<dtype>;
  std::uint32_t word = 0;
  std::uint32_t nonfinite = 0;
  int at = 0;
  GRADVANE_UNROLL
  for (int i = 3; i >= 0; --i) {
    const std::uint32_t here = Of::at_least(vector.word[i], Format<dtype>::kInf);
    if (here == 0) continue;
    nonfinite = here;
    word = vector.word[i];
    at = i * Of::kPerWord;
  }
  const int lane = lowest_bit(nonfinite) / Of::kBits;
  index += at + lane;
  if (into.first_nonfinite >= 0 && into.first_nonfinite <= index) return;
  const auto bits = static_cast<Bits<dtype>>(word >> lane * Of::kBits);
  const NonfiniteKind kind = (bits & Format<dtype>::kAbsMask) != Format<dtype>::kInf
                                 ? NonfiniteKind::nan
                             : bits == Format<dtype>::kInf ? NonfiniteKind::pos_inf
                                                           : NonfiniteKind::neg_inf;
  into.first_nonfinite = index;
  into.first_kind = static_cast<std::int16_t>(kind);
}

}  // namespace detail

/// Reads `vectors` vectors that are `stride` bytes apart, the first at `at`; in ascending order. fp32,
/// fp16, bf16. Out of line: its code would be in the way of the loops.
/// @param tensor    its first element
/// @param is_first  nothing was read into `into` yet
/// @return          whether the fast path refuses any of them
template <DType dtype, class Lane>
GRADVANE_OUT_OF_LINE GRADVANE_HOST_DEVICE bool read_carefully(const std::byte* tensor,
                                                              const std::byte* at, int vectors,
                                                              int stride, bool is_first,
                                                              TensorStats& into) noexcept {
  constexpr auto kElements = static_cast<std::uint32_t>(detail::FiniteSums<dtype>::kElements);
  if (is_first) into = TensorStats{};
  detail::FiniteSums<dtype> sums;
  detail::NonfiniteCounts counts;
  // All are on their way to the L2 cache before the first is worked on, without a register for them: loaded one after
  // the other, each would be a wait for memory.
  GRADVANE_ROLL
  for (int v = 0; v < vectors; ++v) Lane::prefetch(at + v * stride);
  GRADVANE_ROLL
  for (int v = 0; v < vectors; ++v, at += stride) {
    Vector vector = Lane::load(at);
    if (detail::is_any_nonfinite<dtype>(vector)) {
      if (counts.packed == 0)
        detail::note_first<dtype>(vector, (at - tensor) / size_in_bytes(dtype), into);
      const detail::Found found = detail::take_nonfinite<dtype>(vector);
      const std::uint32_t nonfinite = detail::set_bits(found.nonfinite);
      counts.add(nonfinite, detail::set_bits(found.nan), detail::set_bits(found.negative));
      if (nonfinite == kElements) continue;  // often, in a run that has broken
      sums.zero -= nonfinite;
      sums.below_normal -= nonfinite;
    }
    sums.add(vector);
  }
  sums.add_to(into);
  counts.add_to(into);
  return counts.packed != 0 ||
         (dtype != DType::f16 && (sums.below_normal != sums.zero || !fits_short_run(sums.max)));
}

}  // namespace gradvane::kernels::device
