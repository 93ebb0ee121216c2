#pragma once
// Merging many TensorStats with a thread for each of their words, instead of one for each of them: a half
// warp takes one at once, without a branch. The order of sums is that of the calls, then the first
// half's before the second's.
//
// Those whose sums are scaled (see sum_scale.hpp: fp64 outside about 2^±500) do not fit this: the caller
// asks is_scaled(), and merges them one by one.
#include <cstddef>
#include <cstdint>

#include "kernels/device/pass_layout.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

inline constexpr int kHalfWarp = kWarp / 2;
inline constexpr int kStatsWords = sizeof(TensorStats) / sizeof(std::uint64_t);
static_assert(kStatsWords <= kHalfWarp);

template <class Lane>
class FieldMerge {
 public:
  GRADVANE_HOST_DEVICE explicit FieldMerge(Lane& lane) noexcept
      : lane_(lane), place_(lane.thread() % kHalfWarp), word_(empty()) {}

  /// Which half of its warp this thread is in, 0 or 1.
  [[nodiscard]] GRADVANE_HOST_DEVICE int half() const noexcept {
    return lane_.thread() % kWarp / kHalfWarp;
  }
  /// This thread's word of `stats`.
  [[nodiscard]] GRADVANE_HOST_DEVICE std::uint64_t word_of(
      const TensorStats& stats) const noexcept {
    return words_of(stats)[place_ < kKinds ? place_ : kKinds];
  }
  /// Its word of a TensorStats without elements.
  [[nodiscard]] GRADVANE_HOST_DEVICE std::uint64_t empty() const noexcept {
    if (place_ == kAbsMinNonzero) return kInfinity;
    return place_ == kFirstNonfinite ? kNone : 0;
  }

  /// Adds a TensorStats, of which each thread of the half warp has its word.
  /// @param number  the caller's, to find it again
  GRADVANE_HOST_DEVICE void add(std::uint64_t word, int number) noexcept {
    if (place_ >= kKinds) is_scaled_ |= static_cast<std::uint32_t>(word) != 0;
    combine(word, number);
  }

  /// Whether one of the warp was scaled: then nothing of this counts.
  [[nodiscard]] GRADVANE_HOST_DEVICE bool is_scaled() noexcept { return lane_.any(is_scaled_); }

  /// Adds what the second half has to what the first has. By the whole warp.
  GRADVANE_HOST_DEVICE void join_halves() noexcept {
    const std::uint64_t word = lane_.shuffle_down(word_, kHalfWarp);
    combine(word, lane_.shuffle_down(first_, kHalfWarp));
  }

  /// By the threads of a half warp.
  /// @param added  by the numbers that were given to add()
  GRADVANE_HOST_DEVICE void store(TensorStats& into, const TensorStats* added) const noexcept {
    auto* words = reinterpret_cast<std::uint64_t*>(&into);
    if (place_ < kKinds) words[place_] = word_;
    if (place_ == kFirstNonfinite) {
      words[kKinds] = word_ == kNone ? kNoKinds : words_of(added[first_])[kKinds];
    }
  }

 private:
  // Words of a TensorStats: counts, then sums, then extremes, then its kinds with its scale.
  static constexpr int kSum = 6;
  static constexpr int kSumSq = 8;
  static constexpr int kAbsMax = 9;
  static constexpr int kAbsMinNonzero = 10;
  static constexpr int kFirstNonfinite = 11;
  static constexpr int kKinds = 12;
  static_assert(offsetof(TensorStats, subnormal) == 8 * (kSum - 1));
  static_assert(offsetof(TensorStats, sum) == 8 * kSum);
  static_assert(offsetof(TensorStats, sum_sq) == 8 * kSumSq);
  static_assert(offsetof(TensorStats, abs_max) == 8 * kAbsMax);
  static_assert(offsetof(TensorStats, abs_min_nonzero) == 8 * kAbsMinNonzero);
  static_assert(offsetof(TensorStats, first_nonfinite) == 8 * kFirstNonfinite);
  static_assert(offsetof(TensorStats, scale_exp) == 8 * kKinds && kKinds == kStatsWords - 1);
  static constexpr std::uint64_t kInfinity = 0x7ff0000000000000;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};      ///< first_nonfinite -1
  static constexpr std::uint64_t kNoKinds = 0x0000ffff00000000;  ///< first_kind -1

  static GRADVANE_HOST_DEVICE const std::uint64_t* words_of(const TensorStats& stats) noexcept {
    return reinterpret_cast<const std::uint64_t*>(&stats);
  }

  GRADVANE_HOST_DEVICE void combine(std::uint64_t word, int number) noexcept {
    const std::uint64_t count = word_ + word;
    const double sum = __builtin_bit_cast(double, word_) + __builtin_bit_cast(double, word);
    // Magnitudes compare as their bits do, and no first element, -1, is the largest.
    const bool takes = (word < word_) != (place_ == kAbsMax);
    const std::uint64_t extreme = takes ? word : word_;
    first_ = takes ? number : first_;
    word_ = place_ < kSum     ? count
            : place_ > kSumSq ? extreme
                              : __builtin_bit_cast(std::uint64_t, sum);
  }

  Lane& lane_;
  int place_;
  std::uint64_t word_;
  int first_ = 0;  ///< of the one with the first non-finite element; in that thread
  bool is_scaled_ = false;
};

/// Merges them whatever their scales. By one thread; out of line: rare, and long.
GRADVANE_OUT_OF_LINE GRADVANE_HOST_DEVICE inline void merge_one_by_one(TensorStats& into,
                                                                       const TensorStats* all,
                                                                       int count) noexcept {
  into = TensorStats{};
  GRADVANE_ROLL
  for (int i = 0; i < count; ++i) merge(into, all[i]);
}

/// Merges into `into` those of a warp's whose lanes are set, in the order of lanes. As above.
GRADVANE_OUT_OF_LINE GRADVANE_HOST_DEVICE inline void merge_lanes(TensorStats& into,
                                                                  const TensorStats* of_lanes,
                                                                  std::uint32_t lanes) noexcept {
  GRADVANE_ROLL
  for (; lanes != 0; lanes >>= 1, ++of_lanes) {
    if ((lanes & 1) != 0) merge(into, *of_lanes);
  }
}

}  // namespace gradvane::kernels::device
