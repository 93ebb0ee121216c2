#pragma once
// Whether the numbers of a copy are finite.
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradvane::agent {

/// How floating-point numbers lie in memory: by their bytes and the bits of the exponent, which are
/// all set in NaN and infinity.
struct FloatLayout {
  int bytes = 0;  ///< 1, 2, 4 or 8; 0: no floating-point numbers
  std::uint64_t exponent = 0;
};

[[nodiscard]] bool all_finite(std::span<const std::byte> bytes, const FloatLayout& layout) noexcept;

}  // namespace gradvane::agent
