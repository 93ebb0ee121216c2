#pragma once
// From an element to the type it is worked with in, fp32 or fp64, and back: rounded to nearest, ties to even. A device
// has instructions for 16 bits, whose meaning is written out for the host.
#include <cstdint>

#include "kernels/element.hpp"
#include "kernels/host_device.hpp"

namespace gradvane::kernels::device {

namespace detail {

GRADVANE_HOST_DEVICE inline std::uint32_t bits_of(float value) noexcept {
  return __builtin_bit_cast(std::uint32_t, value);
}
GRADVANE_HOST_DEVICE inline std::uint64_t bits_of(double value) noexcept {
  return __builtin_bit_cast(std::uint64_t, value);
}

GRADVANE_HOST_DEVICE inline std::uint16_t to_bf16(std::uint32_t bits) noexcept {
  const bool is_nan = (bits & Format<DType::f32>::kAbsMask) > Format<DType::f32>::kInf;
  if (is_nan) return 0x7fff;  // as the instruction has it
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

GRADVANE_HOST_DEVICE inline std::uint16_t to_f16(std::uint32_t bits) noexcept {
  constexpr std::uint32_t kSmallestThatOverflows = 0x477ff000;  // 65,520: halfway to 65,536
  constexpr std::uint32_t kMinNormal = 0x38800000;              // 2^-14
  const std::uint32_t magnitude = bits & Format<DType::f32>::kAbsMask;
  const auto sign = static_cast<std::uint16_t>((bits ^ magnitude) >> 16);
  std::uint32_t narrow = 0;
  if (magnitude > Format<DType::f32>::kInf) {
    return 0x7fff;
  }
  if (magnitude >= kSmallestThatOverflows) {
    narrow = Format<DType::f16>::kInf;
  } else if (magnitude >= kMinNormal) {
    // The exponent's bias goes from 127 to 15; thirteen bits of mantissa go.
    narrow = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  } else {
    // A multiple of 2^-24: added to 0.5, where such a multiple is the last bit, it is rounded there.
    const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
    narrow = __builtin_bit_cast(std::uint32_t, sum) - 0x3f000000;
  }
  return static_cast<std::uint16_t>(sign | narrow);
}

}  // namespace detail

/// value(), by one instruction where a device has it.
template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE inline auto widen(Bits<dtype> bits) noexcept {
#if defined(__CUDA_ARCH__)
  if constexpr (dtype == DType::f16) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
  } else
#endif
    return value<dtype>(bits);
}

/// NaN stays one; beyond the largest number is infinity.
template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE inline Bits<dtype> narrow(float value) noexcept {
#if defined(__CUDA_ARCH__)
  if constexpr (dtype == DType::f16) {
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  if constexpr (dtype == DType::bf16) {
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
#endif
  const std::uint32_t bits = detail::bits_of(value);
  if constexpr (dtype == DType::bf16) return detail::to_bf16(bits);
  if constexpr (dtype == DType::f16) return detail::to_f16(bits);
  if constexpr (dtype == DType::f32) return bits;
}
template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE inline Bits<dtype> narrow(double value) noexcept {
  return detail::bits_of(value);
}

/// narrow() of two, `low` in the lower half of the word. A device has one instruction for both; the compiler makes it of
/// two for some devices only.
template <DType dtype>
[[nodiscard]] GRADVANE_HOST_DEVICE inline std::uint32_t narrow_two(float low, float high) noexcept {
  static_assert(dtype == DType::f16 || dtype == DType::bf16);
#if defined(__CUDA_ARCH__)
  std::uint32_t word;
  if constexpr (dtype == DType::f16)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return std::uint32_t{narrow<dtype>(high)} << 16 | narrow<dtype>(low);
#endif
}

}  // namespace gradvane::kernels::device
