// The reference: the order of cpu_part.hpp written as plainly as it can be.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu_part.hpp"
#include "kernels/element.hpp"
#include "kernels/sum_scale.hpp"

namespace gradvane::kernels {
namespace {

// bf16 becomes fp32 by a shift or a mask, which takes the even and the odd elements apart.
template <DType dtype>
constexpr int lane_of(int index) noexcept {
  const int lane = index % kLanes;
  return dtype == DType::bf16 ? lane % 2 * 16 + lane / 2 : lane;
}

template <DType dtype>
Bits<dtype> load(const std::byte* at) noexcept {
  Bits<dtype> bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

// Counts a run's elements and returns its largest finite magnitude.
template <DType dtype>
double count_run(const std::byte* run, int count, std::int64_t index, PartTotals& totals) noexcept {
  Bits<dtype> abs_max = 0;
  for (int i = 0; i < count; ++i) {
    const auto bits = load<dtype>(run + i * size_in_bytes(dtype));
    const ElementClass kind = classify<dtype>(bits);
    if (kind >= ElementClass::infinity) {
      const NonfiniteKind nonfinite = nonfinite_kind<dtype>(bits);
      totals.nan += nonfinite == NonfiniteKind::nan;
      totals.pos_inf += nonfinite == NonfiniteKind::pos_inf;
      totals.neg_inf += nonfinite == NonfiniteKind::neg_inf;
      if (totals.first_nonfinite < 0) {
        totals.first_nonfinite = index + i;
        totals.first_kind = static_cast<std::int32_t>(nonfinite);
      }
      continue;
    }
    totals.zero += kind == ElementClass::zero;
    totals.subnormal += kind == ElementClass::subnormal;
    const auto magnitude = static_cast<Bits<dtype>>(bits & Format<dtype>::kAbsMask);
    abs_max = std::max(abs_max, magnitude);
    if (magnitude != 0)
      totals.abs_min_bits = std::min<std::uint64_t>(totals.abs_min_bits, magnitude);
  }
  totals.abs_max_bits = std::max<std::uint64_t>(totals.abs_max_bits, abs_max);
  return static_cast<double>(value<dtype>(abs_max));
}

// Sums a run's finite elements, each times `factor`, in `Real`.
template <DType dtype, typename Real>
void sum_run(const std::byte* run, int count, Real factor, PartTotals& totals) noexcept {
  constexpr int kCount = sizeof(Real) == sizeof(double) ? kWideLanes : kLanes;
  // In fp32, elements of lanes i and i + kPairs are added to each other before they are added up.
  constexpr bool kAddsPairs = kCount == kLanes;
  constexpr int kPairs = kAddsPairs ? kCount / 2 : kCount;
  Real sum[static_cast<std::size_t>(kPairs)] = {};
  Real sum_abs[static_cast<std::size_t>(kPairs)] = {};
  Real sum_sq[static_cast<std::size_t>(kCount)] = {};
  for (int begin = 0; begin < count; begin += kLanes) {
    Real row[static_cast<std::size_t>(kLanes)] = {};
    for (int i = begin; i < std::min(begin + kLanes, count); ++i) {
      const auto bits = load<dtype>(run + i * size_in_bytes(dtype));
      if (classify<dtype>(bits) >= ElementClass::infinity) continue;
      row[lane_of<dtype>(i)] = static_cast<Real>(value<dtype>(bits)) * factor;
    }
    for (int lane = 0; lane < kLanes; ++lane)
      sum_sq[lane % kCount] = std::fma(row[lane], row[lane], sum_sq[lane % kCount]);
    if constexpr (kAddsPairs) {
      for (int lane = 0; lane < kPairs; ++lane) {
        sum[lane] += row[lane] + row[lane + kPairs];
        sum_abs[lane] += std::fabs(row[lane]) + std::fabs(row[lane + kPairs]);
      }
    } else {
      for (int lane = 0; lane < kLanes; ++lane) {
        sum[lane % kPairs] += row[lane];
        sum_abs[lane % kPairs] += std::fabs(row[lane]);
      }
    }
  }
  for (int width = kCount / 2; width >= kPartLanes; width /= 2) {
    for (int lane = 0; lane < width; ++lane) {
      sum_sq[lane] += sum_sq[lane + width];
      if (width == kPairs) continue;  // those are added already
      sum[lane] += sum[lane + width];
      sum_abs[lane] += sum_abs[lane + width];
    }
  }
  for (int lane = 0; lane < kPartLanes; ++lane) {
    totals.sum[lane] += static_cast<double>(sum[lane]);
    totals.sum_abs[lane] += static_cast<double>(sum_abs[lane]);
    totals.sum_sq[lane] += static_cast<double>(sum_sq[lane]);
  }
}

template <DType dtype>
void read_part(const void* data, std::int64_t count, PartTotals& totals) noexcept {
  constexpr std::int64_t kRun = (dtype == DType::f64 ? kWideLanes : kLanes) * kRunRows;
  const auto* bytes = static_cast<const std::byte*>(data);
  totals = PartTotals{};
  totals.abs_min_bits = ~std::uint64_t{0};
  totals.first_nonfinite = -1;
  totals.first_kind = -1;
  for (std::int64_t begin = 0; begin < count; begin += kRun) {
    const std::byte* run = bytes + begin * size_in_bytes(dtype);
    const int in_run = static_cast<int>(std::min(kRun, count - begin));
    const double abs_max = count_run<dtype>(run, in_run, begin, totals);
    if constexpr (dtype == DType::f64) {
      const int scale_exp = scale_exp_for(value<dtype>(totals.abs_max_bits));
      for (int lane = 0; lane < kPartLanes; ++lane) {
        totals.sum[lane] = rescale_sum(totals.sum[lane], totals.scale_exp, scale_exp);
        totals.sum_abs[lane] = rescale_sum(totals.sum_abs[lane], totals.scale_exp, scale_exp);
        totals.sum_sq[lane] = rescale_sum_sq(totals.sum_sq[lane], totals.scale_exp, scale_exp);
      }
      totals.scale_exp = scale_exp;
      sum_run<dtype, double>(run, in_run, element_factor(scale_exp), totals);
    } else if (fits_short_run(abs_max)) {
      sum_run<dtype, float>(run, in_run, 1, totals);
    } else {
      sum_run<dtype, double>(run, in_run, 1, totals);
    }
  }
}

}  // namespace

const ReadPartTable kScalarReadPart = {{
    read_part<DType::f32>,
    read_part<DType::f64>,
    read_part<DType::f16>,
    read_part<DType::bf16>,
}};

}  // namespace gradvane::kernels
