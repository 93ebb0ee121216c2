#pragma once
// The vector paths' loop over a part, in the order of cpu_part.hpp, written once for every instruction
// set and dtype. What is particular to one of them is in its traits T: see cpu_avx2.cpp.
//
// A run is first read as if there were nothing in it to count, with one test at its end. Where the
// test finds zeros, they are counted in a second sweep, and in the run after it in the first one. A run
// with anything worse (NaN, Inf, subnormals, squares that fp32 cannot hold) is read again, exactly; so
// is the run after it, without trying, until one is harmless again. Which way a run is read changes
// no bit of its result.
//
// T is a type of an unnamed namespace, which makes every function here private to its unit: a linker
// that merged the units' copies would hand one processor's code to all. For the same reason nothing
// inline of anybody else's is called, the standard library's included.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu_part.hpp"
#include "kernels/sum_scale.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels {

template <class T>
class RunLoop {
 public:
  static void read_part(const void* data, std::int64_t count, PartTotals& totals) noexcept {
    RunLoop loop;
    const auto* run = static_cast<const std::byte*>(data);
    const auto elements = static_cast<std::size_t>(count);
    std::size_t begin = 0;
    for (; begin + kRun <= elements; begin += kRun, run += kRunBytes) {
      loop.read_run(run, kRunRows, begin);
    }
    if (begin < elements) loop.read_tail(run, elements - begin, begin);
    loop.finish(totals);
  }

 private:
  using Raw = typename T::Raw;          // a vector of element bits
  using Wide = typename T::Doubles::V;  // a vector of doubles
  using Count = typename T::Count;      // of one run
  using Element = typename T::Element;  // the bits of one

  static constexpr std::size_t kVectors = T::kVectors;  // of Raw, a row
  static constexpr std::size_t kRowBytes = kVectors * sizeof(Raw);
  static constexpr std::size_t kRunBytes = kRowBytes * kRunRows;
  static constexpr std::size_t kRowElements = kRowBytes / sizeof(Element);
  static constexpr std::size_t kRun = kRowElements * kRunRows;
  static constexpr std::size_t kParts = kPartLanes * sizeof(double) / sizeof(Wide);

  // A run's sums, by lane, as S::V: floats, or doubles in kWideLanes lanes.
  template <class S>
  struct RunSums {
    using V = typename S::V;
    static constexpr std::size_t kCount = S::kRunLanes / S::kLanes;
    static constexpr std::size_t kPairs = S::kAddsPairs ? kCount / 2 : kCount;
    // Adds vectors by lane, or (S::kAddsPairs) those of a row's two halves to each other first.
    struct Sum {
      V lanes[kPairs];
      V first[kPairs];  // waits for the other of its pair
      [[gnu::always_inline]] void add(std::size_t slot, V value) noexcept {
        if constexpr (!S::kAddsPairs) {
          lanes[slot] = S::add(lanes[slot], value);
        } else if (slot < kPairs) {
          first[slot] = value;
        } else {
          const std::size_t pair = slot - kPairs;
          lanes[pair] = S::add(lanes[pair], S::add(first[pair], value));
        }
      }
    };
    Sum sum;
    Sum sum_abs;
    V sum_sq[kCount];

    [[gnu::always_inline]] RunSums() noexcept {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kCount; ++i) sum_sq[i] = S::zero();
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kPairs; ++i) sum.lanes[i] = sum_abs.lanes[i] = S::zero();
    }
    // Vector number `vector` of a row: its bits, or its address where T converts from memory.
    template <class Source>
    [[gnu::always_inline]] void add(Source x, std::size_t vector, Wide factor) noexcept {
#pragma GCC unroll 2
      for (std::size_t half = 0; half < T::kHalves; ++half) {
#pragma GCC unroll 2
        for (std::size_t i = 0; i < S::kPerHalf; ++i) {
          const V value = S::value(x, half, i, factor);
          const std::size_t slot = (T::slot(vector, half) * S::kPerHalf + i) % kCount;
          sum.add(slot, value);
          sum_sq[slot] = S::fma(value, value, sum_sq[slot]);
          sum_abs.add(slot, S::abs(value));
        }
      }
    }
    [[gnu::always_inline]] void add_to(RunLoop& loop) noexcept {
      fold<kPairs / 2>(sum.lanes);
      fold<kPairs / 2>(sum_abs.lanes);
      fold<kCount / 2>(sum_sq);
      S::add_to(loop.sum_, sum.lanes);
      S::add_to(loop.sum_abs_, sum_abs.lanes);
      S::add_to(loop.sum_sq_, sum_sq);
    }
    // Whole vectors, while more than kPartLanes are left; S::add_to does the rest.
    template <std::size_t n>
    [[gnu::always_inline]] static void fold(V* lanes) noexcept {
      if constexpr (n > 0 && n * S::kLanes >= kPartLanes) {
#pragma GCC unroll 8
        for (std::size_t i = 0; i < n; ++i) lanes[i] = S::add(lanes[i], lanes[i + n]);
        fold<n / 2>(lanes);
      }
    }
  };

  void read_run(const std::byte* run, std::size_t rows, std::size_t begin) noexcept {
    if (!cautious_) {
      if (counting_ ? read_harmless<true>(run, rows) : read_harmless<false>(run, rows)) return;
    }
    cautious_ = read_exactly(run, rows, begin);
  }

  // kCounting: zeros (and in fp16 subnormals) are expected, and counted in the same sweep.
  template <bool kCounting>
  [[gnu::always_inline]] bool read_harmless(const std::byte* run, std::size_t rows) noexcept {
    RunSums<typename T::Short> sums;
    typename T::Tally tally;
    Count small = T::no_count();
    Raw max = T::no_max();
    Raw low = T::no_min();
    const std::byte* const end = run + rows * kRowBytes;
    // Unrolled further, GCC 12 moves the loop's work behind the test, and spills.
#pragma GCC unroll 1
    for (const std::byte* row = run; row != end; row += kRowBytes) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kVectors; ++i) {
        const std::byte* at = row + i * sizeof(Raw);
        if constexpr (T::kConvertsFromMemory) {
          sums.add(at, i, T::factor(0));
        } else {
          sums.add(T::load(at), i, T::factor(0));
        }
        if constexpr (!kCounting) {
          const Raw magnitude = T::magnitude(T::load(at));
          max = T::max(max, magnitude);
          low = T::min(low, magnitude);
        } else if constexpr (T::kManyRegisters) {
          count_one(at, tally, small);
        }
      }
    }
    // With few registers, one loop for both would keep some of its state in memory.
    if (kCounting ? !T::kManyRegisters : T::has_small(low)) {
#pragma GCC unroll 4
      for (const std::byte* at = run; at != end; at += sizeof(Raw)) count_one(at, tally, small);
    } else if constexpr (!kCounting) {
      tally.max = max;
      tally.min = T::from_low(low);
    }
    if (!T::harmless(tally, sums.sum_sq)) [[unlikely]] {
      return false;
    }
    if constexpr (!T::kSubnormalsAreCommon) small = tally.zero;
    counting_ = T::any_counted(small);
    keep(tally);
    small_ = T::fold(small_, small);
    sums.add_to(*this);
    return true;
  }

  [[gnu::always_inline]] static void count_one(const std::byte* at, typename T::Tally& tally,
                                               Count& small) noexcept {
    const Raw magnitude = T::magnitude(T::load(at));
    tally.add(magnitude);
    if constexpr (T::kSubnormalsAreCommon) small = T::count_small(small, magnitude);
  }

  // Returns whether the next run is to be read like this too.
  [[gnu::noinline]] bool read_exactly(const std::byte* run, std::size_t rows,
                                      std::size_t begin) noexcept {
    const std::byte* const end = run + rows * kRowBytes;
    typename T::Tally tally;
    Count small = T::no_count();
    Count nonfinite = T::no_count();
    for (const std::byte* at = run; at != end; at += sizeof(Raw)) {
      const Raw magnitude = T::magnitude(T::load(at));
      const auto is_nonfinite = T::is_nonfinite(magnitude);
      nonfinite = T::count(nonfinite, is_nonfinite);
      small = T::count_small(small, magnitude);
      tally.add(T::clear(magnitude, is_nonfinite));  // cleared ones are zeros: finish() knows
    }
    keep(tally);
    small_ = T::fold(small_, small);
    const bool has_nonfinite = T::any_counted(nonfinite);
    if (has_nonfinite) {
      nonfinite_ = T::fold(nonfinite_, nonfinite);
      count_infinite(run, end);
      if (first_nonfinite_ < 0) find_first(run, end, begin);
    }

    bool wide = false;
    if constexpr (T::kScaled) {
      rescale();
      wide = scale_exp_ != 0;
      sum_finite<typename T::Doubles>(run, end, has_nonfinite);
    } else {
      wide = !T::fits_short_run(tally.max);
      if (wide) {
        sum_finite<typename T::Doubles>(run, end, has_nonfinite);
      } else {
        sum_finite<typename T::Short>(run, end, has_nonfinite);
      }
    }
    return has_nonfinite || wide || (!T::kSubnormalsAreCommon && T::below_normal(tally.min));
  }

  [[gnu::always_inline]] void keep(const typename T::Tally& tally) noexcept {
    max_ = T::max(max_, tally.max);
    min_ = T::min(min_, tally.min);
    zero_ = T::fold(zero_, tally.zero);
  }

  [[gnu::always_inline]] void count_infinite(const std::byte* run, const std::byte* end) noexcept {
    Count infinite = T::no_count();
    Count neg_inf = T::no_count();
    for (; run != end; run += sizeof(Raw)) {
      const Raw x = T::load(run);
      infinite = T::count(infinite, T::is_infinite(T::magnitude(x)));
      neg_inf = T::count(neg_inf, T::is_neg_inf(x));
    }
    infinite_ = T::fold(infinite_, infinite);
    neg_inf_ = T::fold(neg_inf_, neg_inf);
  }

  template <class S>
  [[gnu::always_inline]] void sum_finite(const std::byte* run, const std::byte* end,
                                         bool has_nonfinite) noexcept {
    RunSums<S> sums;
    const Wide factor = T::factor(scale_exp_);
    if (has_nonfinite) {
      sum_rows(run, end, factor, sums,
               [](Raw x) { return T::clear(x, T::is_nonfinite(T::magnitude(x))); });
    } else {
      sum_rows(run, end, factor, sums, [](Raw x) { return x; });
    }
    sums.add_to(*this);
  }

  template <class Sums, class Finite>
  [[gnu::always_inline]] static void sum_rows(const std::byte* row, const std::byte* end,
                                              Wide factor, Sums& sums, Finite finite) noexcept {
    for (; row != end; row += kRowBytes) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kVectors; ++i) {
        sums.add(finite(T::load(row + i * sizeof(Raw))), i, factor);
      }
    }
  }

  // Brings the part's sums to the scale that its largest magnitude so far asks for.
  void rescale() noexcept {
    const int scale_exp = T::scale_exp_for(max_);
    for (; scale_exp_ < scale_exp; scale_exp_ += kScaleStep) {
      for (std::size_t i = 0; i < kParts; ++i) {
        sum_[i] = T::Doubles::scale(sum_[i], 0x1p-600);
        sum_abs_[i] = T::Doubles::scale(sum_abs_[i], 0x1p-600);
        sum_sq_[i] = T::Doubles::scale(T::Doubles::scale(sum_sq_[i], 0x1p-600), 0x1p-600);
      }
    }
    scale_exp_ = scale_exp;  // also down, from a part that was all zeros
  }

  void read_tail(const std::byte* from, std::size_t count, std::size_t begin) noexcept {
    const std::size_t rows = (count + kRowElements - 1) / kRowElements;
    const std::size_t bytes = count * sizeof(Element);
    if (bytes == rows * kRowBytes) return read_run(from, rows, begin);
    alignas(64) std::byte run[kRunBytes];
    std::memcpy(run, from, bytes);
    std::memset(run + bytes, 0, rows * kRowBytes - bytes);
    padding_ = static_cast<std::int64_t>(rows * kRowElements - count);
    read_run(run, rows, begin);
  }

  // Once a part at most. Finds nothing if another thread writes to the tensor meanwhile.
  void find_first(const std::byte* run, const std::byte* end, std::size_t begin) noexcept {
    for (std::size_t i = 0; run + i * sizeof(Element) < end; ++i) {
      Element bits;
      std::memcpy(&bits, run + i * sizeof(bits), sizeof(bits));
      const auto magnitude = static_cast<Element>(bits & T::kAbsMask);
      if (magnitude < T::kInf) continue;
      const NonfiniteKind kind = magnitude != T::kInf ? NonfiniteKind::nan
                                 : bits != magnitude  ? NonfiniteKind::neg_inf
                                                      : NonfiniteKind::pos_inf;
      first_nonfinite_ = static_cast<std::int64_t>(begin + i);
      first_kind_ = static_cast<std::int32_t>(kind);
      return;
    }
  }

  std::uint64_t largest() const noexcept {
    Element lanes[sizeof(Raw) / sizeof(Element)];
    std::memcpy(lanes, &max_, sizeof(lanes));
    std::uint64_t max = 0;
    for (const Element lane : lanes) max = lane > max ? lane : max;
    return max;
  }
  std::uint64_t smallest() const noexcept {
    Element lanes[sizeof(Raw) / sizeof(Element)];
    std::memcpy(lanes, &min_, sizeof(lanes));
    std::uint64_t min = ~std::uint64_t{0};
    for (const Element lane : lanes) {
      const std::uint64_t bits = T::decode_min(lane);
      min = bits < min ? bits : min;
    }
    return min;
  }

  void finish(PartTotals& totals) const noexcept {
    std::memcpy(totals.sum, sum_, sizeof(totals.sum));
    std::memcpy(totals.sum_abs, sum_abs_, sizeof(totals.sum_abs));
    std::memcpy(totals.sum_sq, sum_sq_, sizeof(totals.sum_sq));
    totals.abs_max_bits = largest();
    totals.abs_min_bits = smallest();
    const std::int64_t nonfinite = T::total(nonfinite_);
    const std::int64_t infinite = T::total(infinite_);
    totals.neg_inf = T::total(neg_inf_);
    totals.pos_inf = infinite - totals.neg_inf;
    totals.nan = nonfinite - infinite;
    totals.zero = T::total(zero_) - nonfinite - padding_;
    totals.subnormal = T::total(small_) - padding_ - totals.zero;
    totals.first_nonfinite = first_nonfinite_;
    totals.first_kind = first_kind_;
    totals.scale_exp = scale_exp_;
  }

  using Total = typename T::Total;
  Wide sum_[kParts] = {};
  Wide sum_abs_[kParts] = {};
  Wide sum_sq_[kParts] = {};
  Raw max_ = T::no_max();
  Raw min_ = T::no_min();
  Total zero_ = {};
  Total small_ = {};  // zeros and subnormals
  Total nonfinite_ = {};
  Total infinite_ = {};
  Total neg_inf_ = {};
  std::int64_t first_nonfinite_ = -1;
  std::int64_t padding_ = 0;
  std::int32_t first_kind_ = -1;
  std::int32_t scale_exp_ = 0;
  bool cautious_ = false;  // the run before was not harmless
  bool counting_ = false;  // the run before had zeros (in fp16, or subnormals)
};

}  // namespace gradvane::kernels
