#pragma once
// Tensors for the tests of the pass: elements of any dtype at any address, and what the pass should
// say of them, worked out in long double by other means than the pass's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <ostream>
#include <random>
#include <span>
#include <vector>

#include "kernels/chunk_plan.hpp"
#include "kernels/cpu_pass.hpp"
#include "kernels/dtype.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels {

inline void PrintTo(DType dtype, std::ostream* out) { *out << name(dtype); }
inline void PrintTo(CpuPath path, std::ostream* out) { *out << name(path); }
inline void PrintTo(const TensorStats& s, std::ostream* out) {
  *out << "{numel " << s.numel << " nan " << s.nan << " +inf " << s.pos_inf << " -inf " << s.neg_inf
       << " zero " << s.zero << " subnormal " << s.subnormal << std::hexfloat << " sum " << s.sum
       << " sum_abs " << s.sum_abs << " sum_sq " << s.sum_sq << " max " << s.abs_max << " min "
       << s.abs_min_nonzero << std::defaultfloat << " first " << s.first_nonfinite << " kind "
       << s.first_kind << " scale " << s.scale_exp << " absence " << s.absence << "}";
}

namespace test {

inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
inline constexpr CpuPath kAllPaths[] = {CpuPath::scalar, CpuPath::avx2, CpuPath::avx512};

/// Sign, exponent and mantissa bits of a dtype, as IEEE 754 has them.
struct Layout {
  int exponent_bits;
  int mantissa_bits;
};
inline Layout layout_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {8, 23};
    case DType::f64:
      return {11, 52};
    case DType::f16:
      return {5, 10};
    case DType::bf16:
      return {8, 7};
  }
  return {};
}
inline std::uint64_t sign_bit(DType dtype) {
  const Layout layout = layout_of(dtype);
  return std::uint64_t{1} << (layout.exponent_bits + layout.mantissa_bits);
}
inline std::uint64_t inf_bits(DType dtype) {
  const Layout layout = layout_of(dtype);
  return ((std::uint64_t{1} << layout.exponent_bits) - 1) << layout.mantissa_bits;
}
/// NaN with the given payload; the default is the smallest, a signalling one.
inline std::uint64_t nan_bits(DType dtype, std::uint64_t payload = 1) {
  return inf_bits(dtype) | payload;
}

/// The value of an element that is finite, from the definition of the format.
inline long double decode(DType dtype, std::uint64_t bits) {
  const Layout layout = layout_of(dtype);
  const int bias = (1 << (layout.exponent_bits - 1)) - 1;
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << layout.mantissa_bits) - 1);
  const auto exponent = static_cast<int>((bits & inf_bits(dtype)) >> layout.mantissa_bits);
  const std::uint64_t hidden = exponent == 0 ? 0 : std::uint64_t{1} << layout.mantissa_bits;
  const long double magnitude =
      std::ldexp(static_cast<long double>(mantissa | hidden),
                 (exponent == 0 ? 1 : exponent) - bias - layout.mantissa_bits);
  return (bits & sign_bit(dtype)) != 0 ? -magnitude : magnitude;
}

/// The element of this dtype at or next below `value` in magnitude.
inline std::uint64_t encode(DType dtype, double value) {
  std::uint64_t low = 0;
  std::uint64_t high = inf_bits(dtype);  // decode(low) <= |value| < decode(high)
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (decode(dtype, middle) <= std::fabs(static_cast<long double>(value)) ? low : high) = middle;
  }
  return std::signbit(value) ? low | sign_bit(dtype) : low;
}

/// Elements at an address that is `offset` bytes off a 64-byte boundary, with nothing behind them.
class TensorData {
 public:
  TensorData(DType dtype, std::int64_t numel, std::size_t offset = 0)
      : dtype_(dtype), numel_(numel), width_(static_cast<std::size_t>(size_in_bytes(dtype))) {
    // The end of the tensor is the end of the allocation, for AddressSanitizer to watch.
    const std::size_t bytes = static_cast<std::size_t>(numel) * width_;
    memory_.resize(64 + bytes + 64);
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    start_ = (64 - base % 64) % 64 + offset % 64;
    memory_.resize(start_ + bytes);
  }

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::int64_t numel() const { return numel_; }
  [[nodiscard]] TensorShape shape() const { return {numel_, dtype_}; }
  [[nodiscard]] const void* data() const { return memory_.data() + start_; }

  [[nodiscard]] std::uint64_t bits(std::int64_t index) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, memory_.data() + start_ + static_cast<std::size_t>(index) * width_, width_);
    return bits;
  }
  void set_bits(std::int64_t index, std::uint64_t bits) {
    std::memcpy(memory_.data() + start_ + static_cast<std::size_t>(index) * width_, &bits, width_);
  }
  void set(std::int64_t index, double value) { set_bits(index, encode(dtype_, value)); }
  void fill_bits(const std::function<std::uint64_t(std::int64_t)>& bits_at) {
    for (std::int64_t i = 0; i < numel_; ++i) set_bits(i, bits_at(i));
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    return {memory_.begin() + static_cast<std::ptrdiff_t>(start_), memory_.end()};
  }
  void copy_from(const TensorData& other) {
    std::memcpy(memory_.data() + start_, other.data(), static_cast<std::size_t>(numel_) * width_);
  }

 private:
  DType dtype_;
  std::int64_t numel_;
  std::size_t width_;
  std::size_t start_ = 0;
  std::vector<std::byte> memory_;
};

/// Fills with finite, normal elements of either sign whose exponents lie in [low, high], both clamped
/// to the dtype's.
inline void fill_normal(TensorData& tensor, std::mt19937_64& random, int low, int high) {
  const Layout layout = layout_of(tensor.dtype());
  const int bias = (1 << (layout.exponent_bits - 1)) - 1;
  const int first = std::max(low + bias, 1);
  const int last = std::max(first, std::min(high + bias, (1 << layout.exponent_bits) - 2));
  std::uniform_int_distribution<std::uint64_t> exponent(static_cast<std::uint64_t>(first),
                                                        static_cast<std::uint64_t>(last));
  const std::uint64_t mantissa_mask = (std::uint64_t{1} << layout.mantissa_bits) - 1;
  tensor.fill_bits([&](std::int64_t) {
    const std::uint64_t noise = random();
    return (exponent(random) << layout.mantissa_bits) | (noise & mantissa_mask) |
           ((noise >> 63) != 0 ? sign_bit(tensor.dtype()) : 0);
  });
}

struct Expected {
  TensorStats exact;  ///< all but the sums and their scale
  long double sum = 0;
  long double sum_abs = 0;
  long double sum_sq = 0;

  /// With the sums, at scale 0.
  [[nodiscard]] TensorStats whole() const {
    TensorStats stats = exact;
    stats.sum = static_cast<double>(sum);
    stats.sum_abs = static_cast<double>(sum_abs);
    stats.sum_sq = static_cast<double>(sum_sq);
    return stats;
  }
};

/// What does not depend on the order of additions.
inline TensorStats without_sums(TensorStats stats) {
  stats.sum = stats.sum_abs = stats.sum_sq = 0;
  stats.scale_exp = 0;
  return stats;
}

/// @param sum_tolerance   of the sums, relative to the sum of magnitudes
/// @param norm_tolerance  of the norm, relative to it
inline void expect_sums(const TensorStats& actual, const Expected& expected, double sum_tolerance,
                        double norm_tolerance) {
  const auto unscaled = [&](double sum, int exponents) {
    return std::ldexp(static_cast<long double>(sum), exponents * actual.scale_exp);
  };
  const long double sum_error = sum_tolerance * expected.sum_abs;
  EXPECT_LE(std::fabs(unscaled(actual.sum, 1) - expected.sum), sum_error);
  EXPECT_LE(std::fabs(unscaled(actual.sum_abs, 1) - expected.sum_abs), sum_error);
  const long double norm = std::sqrt(expected.sum_sq);
  EXPECT_LE(std::fabs(std::sqrt(unscaled(actual.sum_sq, 2)) - norm), norm_tolerance * norm);
}

inline Expected expect_of(const TensorData& tensor) {
  Expected expected;
  TensorStats& stats = expected.exact;
  stats.numel = tensor.numel();
  const std::uint64_t inf = inf_bits(tensor.dtype());
  const std::uint64_t sign = sign_bit(tensor.dtype());
  const std::uint64_t min_normal = std::uint64_t{1} << layout_of(tensor.dtype()).mantissa_bits;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const std::uint64_t bits = tensor.bits(i);
    const std::uint64_t magnitude = bits & ~sign;
    if (magnitude >= inf) {
      const NonfiniteKind kind = magnitude > inf ? NonfiniteKind::nan
                                 : bits == inf   ? NonfiniteKind::pos_inf
                                                 : NonfiniteKind::neg_inf;
      (kind == NonfiniteKind::nan       ? stats.nan
       : kind == NonfiniteKind::pos_inf ? stats.pos_inf
                                        : stats.neg_inf) += 1;
      if (stats.first_nonfinite < 0) {
        stats.first_nonfinite = i;
        stats.first_kind = static_cast<std::int16_t>(kind);
      }
      continue;
    }
    if (magnitude == 0) {
      ++stats.zero;
      continue;
    }
    if (magnitude < min_normal) ++stats.subnormal;
    const long double value = decode(tensor.dtype(), bits);
    const double absolute = static_cast<double>(std::fabs(value));
    stats.abs_max = std::max(stats.abs_max, absolute);
    stats.abs_min_nonzero = std::min(stats.abs_min_nonzero, absolute);
    expected.sum += value;
    expected.sum_abs += std::fabs(value);
    expected.sum_sq += value * value;
  }
  return expected;
}

/// One read of some tensors on one path, all blocks in order on this thread.
inline std::vector<TensorStats> read(CpuPass& pass, std::span<const void* const> data) {
  std::vector<TensorStats> stats(pass.plan().tensors().size());
  pass.run_blocks(data, 0, pass.blocks());
  pass.finish(stats);
  return stats;
}
inline TensorStats read(CpuPath path, const TensorData& tensor) {
  const TensorShape shape = tensor.shape();
  CpuPass pass(ChunkPlan({&shape, 1}), path);
  const void* data = tensor.data();
  return read(pass, {&data, 1})[0];
}

inline bool same_bits(const TensorStats& a, const TensorStats& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

}  // namespace test
}  // namespace gradvane::kernels
