#pragma once
// What the bytes of a copy are known by: a checksum, and whether the numbers among them are finite.
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradvane::agent {

/// How floating-point numbers lie in memory: by their bytes and the bits of the exponent, which are
/// all set in NaN and infinity.
struct FloatLayout {
  int bytes = 0;  ///< 2, 4 or 8; 0: no floating-point numbers
  std::uint64_t exponent = 0;
};

/// A changed bit always changes it, and so do words that change places. One pass, no memory.
/// @param seed  the checksum of the bytes before
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) noexcept;

[[nodiscard]] bool all_finite(std::span<const std::byte> bytes, const FloatLayout& layout) noexcept;

}  // namespace gradvane::agent
