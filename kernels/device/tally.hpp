#pragma once
// What a thread has read of a part without finding anything special.
#include <cstdint>
#include <limits>

#include "kernels/device/packed.hpp"
#include "kernels/dtype.hpp"
#include "kernels/element.hpp"
#include "kernels/host_device.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

/// Largest and smallest non-zero magnitude, as bits of the dtype.
struct Extremes {
  std::uint64_t max = 0;                  ///< 0: none
  std::uint64_t min = ~std::uint64_t{0};  ///< all ones: none
};

/// What a thread has read of a part without finding anything special. fp16 and bf16.
template <DType dtype>
struct Tally {
  double sum = 0;
  double sum_abs = 0;
  double sum_sq = 0;
  std::uint32_t max = 0;  ///< packed
  std::uint32_t min = kPackedInf;
  std::uint32_t zero = 0;
  std::uint32_t subnormal = 0;

  [[nodiscard]] GRADVANE_HOST_DEVICE std::uint32_t subnormals() const noexcept { return subnormal; }
  [[nodiscard]] GRADVANE_HOST_DEVICE Extremes extremes() const noexcept {
    if (max == 0) return {};
    return {larger_lane(max), smaller_lane(min)};
  }
};

template <>
struct Tally<DType::f32> {
  double sum = 0;
  double sum_abs = 0;
  double sum_sq = 0;
  float max = 0;
  float min = std::numeric_limits<float>::infinity();
  std::uint32_t zero = 0;

  /// Groups with any are read carefully.
  [[nodiscard]] GRADVANE_HOST_DEVICE static std::uint32_t subnormals() noexcept { return 0; }
  [[nodiscard]] GRADVANE_HOST_DEVICE Extremes extremes() const noexcept {
    if (max == 0) return {};
    return {__builtin_bit_cast(std::uint32_t, max), __builtin_bit_cast(std::uint32_t, min)};
  }
};

template <>
struct Tally<DType::f64> {
  double sum = 0;
  double sum_abs = 0;
  double sum_sq = 0;
  double max = 0;
  double min = std::numeric_limits<double>::infinity();
  std::uint32_t zero = 0;

  /// Groups with any are read exactly.
  [[nodiscard]] GRADVANE_HOST_DEVICE static std::uint32_t subnormals() noexcept { return 0; }
  [[nodiscard]] GRADVANE_HOST_DEVICE Extremes extremes() const noexcept {
    if (max == 0) return {};
    return {__builtin_bit_cast(std::uint64_t, max), __builtin_bit_cast(std::uint64_t, min)};
  }
};

/// Adds a tally to statistics that are held at no scale.
template <DType dtype>
GRADVANE_HOST_DEVICE inline void add_tally(const Tally<dtype>& tally, TensorStats& into) noexcept {
  into.sum += tally.sum;
  into.sum_abs += tally.sum_abs;
  into.sum_sq += tally.sum_sq;
  into.zero += tally.zero;
  into.subnormal += tally.subnormals();
  const Extremes extremes = tally.extremes();
  if (extremes.max == 0) return;
  const double max = value<dtype>(static_cast<Bits<dtype>>(extremes.max));
  const double min = value<dtype>(static_cast<Bits<dtype>>(extremes.min));
  if (max > into.abs_max) into.abs_max = max;
  if (min < into.abs_min_nonzero) into.abs_min_nonzero = min;
}

}  // namespace gradvane::kernels::device
