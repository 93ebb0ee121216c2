#pragma once
// What the CPU paths share: the order in which a part's elements are summed, and what is left of it.
//
// The order is part of the result: it is what makes scalar, AVX2 and AVX-512 agree in every bit.
//   - A part is cut into runs of kRunRows rows, a row being one element for each lane: kLanes of
//     them, kWideLanes for fp64. The last run may be shorter and counts as filled up with +0.
//   - fp32, fp16, bf16: a run whose largest finite magnitude is 0 or within [2^-40, 2^40] is summed
//     in fp32, lane by lane and row by row. Any other run is summed in fp64, in kWideLanes lanes: what
//     was lane i goes to lane i % kWideLanes. fp64 likewise, at the part's scale so far.
//     Squares are added by fma. Elements and magnitudes that are summed in fp32 are added in pairs:
//     those of lanes i and i + 16 of a row to each other, then to lane i, so that half the registers
//     do. Non-finite elements count as +0. In bf16, the even elements of a row are its first 16 lanes,
//     the odd ones the others.
//   - The lanes of a run are folded in what they were summed in: lane i += lane i + width, for
//     widths 16 and 8 (in fp64: 8). The kPartLanes left are added to those of the part, in fp64.
//   - At the end of the part, lane i += lane i + width, for widths 4, 2, 1.
// Rounding of a sum of squares or of magnitudes: 16 additions and 2 folds in fp32, so at most
// 18 * 2^-24 = 1.1e-6 of it, and half of that in the norm, whatever the values; the fp64 part is far below.
//
// This file is included by units compiled for one processor only. It defines no inline function: the
// linker could keep such a unit's copy of it for everybody.
#include <cstdint>

#include "kernels/dtype.hpp"

namespace gradvane::kernels {

inline constexpr int kLanes = 32;
inline constexpr int kWideLanes = 16;
inline constexpr int kPartLanes = 8;
inline constexpr int kRunRows = 16;

/// Sums by lane and everything else in total. Magnitudes as the dtype's own bits. Holds nothing before it is written:
/// to clear it first would take as long as to read a small tensor.
struct alignas(64) PartTotals {
  double sum[kPartLanes];
  double sum_abs[kPartLanes];
  double sum_sq[kPartLanes];
  std::uint64_t abs_max_bits;  ///< 0: no finite non-zero element
  std::uint64_t abs_min_bits;  ///< of the non-zero ones; all ones: none
  std::int64_t nan;
  std::int64_t pos_inf;
  std::int64_t neg_inf;
  std::int64_t zero;
  std::int64_t subnormal;
  std::int64_t first_nonfinite;  ///< from the start of the part; -1: none
  std::int32_t first_kind;       ///< -1: none
  std::int32_t scale_exp;
};

/// Reads `count` elements at any alignment, and writes all of `totals`.
using ReadPart = void (*)(const void* data, std::int64_t count, PartTotals& totals) noexcept;

/// By static_cast<int>(DType). A path that this build or architecture lacks is all null.
struct ReadPartTable {
  ReadPart read[kDTypes];
};
extern const ReadPartTable kScalarReadPart;
extern const ReadPartTable kAvx2ReadPart;
extern const ReadPartTable kAvx512ReadPart;

}  // namespace gradvane::kernels
