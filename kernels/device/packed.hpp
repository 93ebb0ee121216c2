#pragma once
// Two 16-bit floats in a word, and four words in a vector: the operations that sm_90 does in one
// instruction, with what they mean written out for the host.
//
// The words are always taken as fp16, also where they hold bf16: the order of sign-cleared bits is the
// same, and so are zero and the sign. bf16 from 2^121 on looks like an fp16 NaN, which the pass treats
// as a reason to read exactly.
#include <cstdint>

#include "kernels/host_device.hpp"

namespace gradvane::kernels::device {

struct alignas(16) Vector {
  std::uint32_t word[4];
};

inline constexpr std::uint32_t kPackedInf = 0x7c007c00;
inline constexpr std::uint32_t kLaneTops = 0x80008000;  ///< bit 15 of both lanes

/// The same 16 bits in both lanes.
GRADVANE_HOST_DEVICE constexpr std::uint32_t both(std::uint32_t bits) noexcept {
  return bits << 16 | bits;
}

/// What the operations mean, by lane: what a host does, and what a test holds the device to.
namespace meaning {

GRADVANE_HOST_DEVICE constexpr bool is_nan(std::uint32_t lane) noexcept {
  return (lane & 0x7fff) > 0x7c00;
}
GRADVANE_HOST_DEVICE constexpr std::uint32_t max_nan(std::uint32_t a, std::uint32_t b) noexcept {
  if (is_nan(a) || is_nan(b)) return 0x7fff;
  return a > b ? a : b;
}
GRADVANE_HOST_DEVICE constexpr std::uint32_t min(std::uint32_t a, std::uint32_t b) noexcept {
  if (is_nan(a)) return is_nan(b) ? 0x7fff : b;
  return is_nan(b) || a < b ? a : b;
}
GRADVANE_HOST_DEVICE constexpr std::uint32_t zero_mask(std::uint32_t a) noexcept {
  return (a & 0x7fff) == 0 ? 0xffff : 0;
}
GRADVANE_HOST_DEVICE constexpr std::uint32_t below_mask(std::uint32_t a,
                                                        std::uint32_t limit) noexcept {
  return a < limit ? 0xffff : 0;
}

GRADVANE_HOST_DEVICE constexpr std::uint32_t join(std::uint32_t high, std::uint32_t low) noexcept {
  return high << 16 | low;
}

}  // namespace meaning

GRADVANE_HOST_DEVICE inline std::uint32_t packed_abs(std::uint32_t x) noexcept {
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("abs.f16x2 %0, %1;" : "=r"(result) : "r"(x));
  return result;
#else
  return x & 0x7fff7fff;
#endif
}

/// Of magnitudes: the larger one, NaN (0x7fff) where either is.
GRADVANE_HOST_DEVICE inline std::uint32_t packed_max_nan(std::uint32_t a,
                                                         std::uint32_t b) noexcept {
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
#else
  return meaning::join(meaning::max_nan(a >> 16, b >> 16),
                       meaning::max_nan(a & 0xffff, b & 0xffff));
#endif
}

/// Of magnitudes: the smaller one; a NaN loses.
GRADVANE_HOST_DEVICE inline std::uint32_t packed_min(std::uint32_t a, std::uint32_t b) noexcept {
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("min.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
#else
  return meaning::join(meaning::min(a >> 16, b >> 16), meaning::min(a & 0xffff, b & 0xffff));
#endif
}

/// All ones in a lane that holds +0 or -0.
GRADVANE_HOST_DEVICE inline std::uint32_t packed_zero_mask(std::uint32_t x) noexcept {
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("set.eq.u32.f16x2 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(0));
  return result;
#else
  return meaning::join(meaning::zero_mask(x >> 16), meaning::zero_mask(x & 0xffff));
#endif
}

/// All ones in a lane of a magnitude below that of `limit`; not where it is NaN.
GRADVANE_HOST_DEVICE inline std::uint32_t packed_below_mask(std::uint32_t x,
                                                            std::uint32_t limit) noexcept {
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("set.lt.u32.f16x2 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(limit));
  return result;
#else
  return meaning::join(meaning::below_mask(x >> 16, limit >> 16),
                       meaning::below_mask(x & 0xffff, limit & 0xffff));
#endif
}

/// Of two magnitudes, as bits: the larger one; the smaller one.
GRADVANE_HOST_DEVICE constexpr std::uint32_t larger_lane(std::uint32_t pair) noexcept {
  const std::uint32_t low = pair & 0xffff;
  return pair >> 16 > low ? pair >> 16 : low;
}
GRADVANE_HOST_DEVICE constexpr std::uint32_t smaller_lane(std::uint32_t pair) noexcept {
  const std::uint32_t low = pair & 0xffff;
  return pair >> 16 < low ? pair >> 16 : low;
}

/// How many lanes were set in masks whose plain sum modulo 2^32 is `sum`, at most 2^15 of them. A set
/// low lane adds 2^16 - 1, a set high one 2^32 - 2^16.
GRADVANE_HOST_DEVICE constexpr std::uint32_t set_lanes(std::uint32_t sum) noexcept {
  const std::uint32_t low = (0u - sum) & 0xffff;
  const std::uint32_t high = (low - ((sum + low) >> 16)) & 0xffff;
  return low + high;
}

}  // namespace gradvane::kernels::device
