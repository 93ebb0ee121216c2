#include "bench/kernels/cuda_bench_data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <sstream>
#include <stdexcept>

namespace gradvane::bench {
namespace {

using kernels::DType;
using kernels::NonfiniteKind;
using kernels::TensorStats;

struct Layout {
  int mantissa;  ///< bits
  int bias;
  std::uint32_t sign;
  std::uint32_t infinity;
};

Layout layout_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {7, 127, 0x8000, 0x7f80};
    case DType::f16:
      return {10, 15, 0x8000, 0x7c00};
    case DType::f32:
      return {23, 127, 0x80000000, 0x7f800000};
    case DType::f64:
      break;
  }
  throw std::invalid_argument("cuda_pass_bench has no data in f64");
}

}  // namespace

Pattern::Pattern(DType dtype, Data data) {
  const Layout layout = layout_of(dtype);
  const std::uint32_t one = 1u << layout.mantissa;
  std::mt19937 engine(7);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  bool is_zero_row = false;
  elements_.resize(kElements);
  bytes_.resize(static_cast<std::size_t>(kElements * size_in_bytes(dtype)));
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    Element& element = elements_[i];
    const bool negative = (random() & 1) != 0;
    const bool is_half = data == Data::half_zero || data == Data::half_subnormal;
    if (data == Data::sparse_rows && i % kSparseRow == 0) is_zero_row = random() % 10 == 0;
    const bool rare = is_half ? (random() & 1) != 0 : is_zero_row;
    std::uint32_t magnitude = 0;
    if (rare && data == Data::half_subnormal) {
      magnitude = 1 + random() % (one - 1);
      element.subnormal = true;
      element.value = std::ldexp(magnitude, 1 - layout.bias - layout.mantissa);
    } else if (!rare) {  // 2^-10 to 1, all exponents as often
      const std::uint32_t mantissa = random() % one;
      const int exponent = -1 - static_cast<int>(random() % 10);
      magnitude = static_cast<std::uint32_t>(exponent + layout.bias) << layout.mantissa | mantissa;
      element.value = std::ldexp(one + mantissa, exponent - layout.mantissa);
    }
    element.bits = magnitude | (negative ? layout.sign : 0);
    if (negative) element.value = -element.value;

    add(element, whole_);
    const auto width = static_cast<std::size_t>(size_in_bytes(dtype));
    std::memcpy(bytes_.data() + i * width, &element.bits, width);  // little-endian
  }
}

std::uint32_t Pattern::bits(std::int64_t position) const {
  return elements_[static_cast<std::size_t>(position % kElements)].bits;
}

void Pattern::add(const Element& element, TensorStats& stats) {
  const double magnitude = std::abs(element.value);
  ++stats.numel;
  stats.zero += magnitude == 0;
  stats.subnormal += element.subnormal;
  stats.sum += element.value;
  stats.sum_abs += magnitude;
  stats.sum_sq += element.value * element.value;
  stats.abs_max = std::max(stats.abs_max, magnitude);
  if (magnitude != 0) stats.abs_min_nonzero = std::min(stats.abs_min_nonzero, magnitude);
}

TensorStats Pattern::expect(std::int64_t start, std::int64_t numel) const {
  const std::int64_t times = numel / kElements;
  TensorStats stats;
  if (times > 0) {
    stats = whole_;
    stats.numel *= times;
    stats.zero *= times;
    stats.subnormal *= times;
    stats.sum *= static_cast<double>(times);
    stats.sum_abs *= static_cast<double>(times);
    stats.sum_sq *= static_cast<double>(times);
  }
  for (std::int64_t i = times * kElements; i < numel; ++i) {
    add(elements_[static_cast<std::size_t>((start + i) % kElements)], stats);
  }
  return stats;
}

std::vector<Injection> injections(const Case& which) {
  const std::size_t last = which.numels.size() - 1;
  const auto numel = [&](std::size_t tensor) { return which.numels[tensor]; };
  return {{0, numel(0) / 2, NonfiniteKind::nan},
          {last / 3, 1, NonfiniteKind::nan},
          {last / 2, 0, NonfiniteKind::neg_inf},
          {last, numel(last) - 1, NonfiniteKind::pos_inf}};
}

std::uint32_t bits_of(NonfiniteKind kind, DType dtype) {
  const Layout layout = layout_of(dtype);
  switch (kind) {
    case NonfiniteKind::nan:
      return layout.infinity | 1u << (layout.mantissa - 1);
    case NonfiniteKind::pos_inf:
      return layout.infinity;
    case NonfiniteKind::neg_inf:
      return layout.infinity | layout.sign;
  }
  return 0;
}

Expectation::Expectation(const Case& which, const Pattern& pattern)
    : injected(which.numels.size(), false) {
  for (std::size_t i = 0; i < which.numels.size(); ++i) {
    tensors.push_back(pattern.expect(Pattern::start(i), which.numels[i]));
  }
}

void Expectation::inject(const Pattern& pattern, const Injection& injection) {
  TensorStats& stats = tensors[injection.tensor];
  const TensorStats gone = pattern.expect(Pattern::start(injection.tensor) + injection.index, 1);
  stats.zero -= gone.zero;
  stats.subnormal -= gone.subnormal;
  stats.sum -= gone.sum;
  stats.sum_abs -= gone.sum_abs;
  stats.sum_sq -= gone.sum_sq;
  stats.nan += injection.kind == NonfiniteKind::nan;
  stats.pos_inf += injection.kind == NonfiniteKind::pos_inf;
  stats.neg_inf += injection.kind == NonfiniteKind::neg_inf;
  if (stats.first_nonfinite < 0 || injection.index < stats.first_nonfinite) {
    stats.first_nonfinite = injection.index;
    stats.first_kind = static_cast<std::int16_t>(injection.kind);
  }
  injected[injection.tensor] = true;
}

double Expectation::norm() const {
  double sum_sq = 0;
  for (const TensorStats& stats : tensors) sum_sq += stats.sum_sq;
  return std::sqrt(sum_sq);
}

bool close(double found, double expected, double relative) {
  return std::abs(found - expected) <= relative * std::abs(expected);
}

std::string Expectation::difference(std::size_t tensor, const TensorStats& found) const {
  const TensorStats& expected = tensors[tensor];
  std::ostringstream text;
  text.precision(17);
  const auto compare = [&](const char* what, auto have, auto want, bool same) {
    if (!same && text.tellp() == 0) {
      text << "tensor " << tensor << ": " << what << " is " << have << ", expected " << want;
    }
  };
  const auto equal = [&](const char* what, auto have, auto want) {
    compare(what, have, want, have == want);
  };
  equal("numel", found.numel, expected.numel);
  equal("nan", found.nan, expected.nan);
  equal("pos_inf", found.pos_inf, expected.pos_inf);
  equal("neg_inf", found.neg_inf, expected.neg_inf);
  equal("zero", found.zero, expected.zero);
  equal("subnormal", found.subnormal, expected.subnormal);
  equal("first_nonfinite", found.first_nonfinite, expected.first_nonfinite);
  equal("first_kind", found.first_kind, expected.first_kind);
  if (!injected[tensor]) {
    equal("abs_max", found.abs_max, expected.abs_max);
    equal("abs_min_nonzero", found.abs_min_nonzero, expected.abs_min_nonzero);
  }
  // Short runs are summed in fp32; so a sum's error goes with the sum of magnitudes.
  compare("sum", found.sum, expected.sum,
          std::abs(found.sum - expected.sum) <= 1e-5 * expected.sum_abs);
  compare("sum_abs", found.sum_abs, expected.sum_abs, close(found.sum_abs, expected.sum_abs, 1e-5));
  compare("sum_sq", found.sum_sq, expected.sum_sq, close(found.sum_sq, expected.sum_sq, 1e-5));
  return text.str();
}

}  // namespace gradvane::bench
