#pragma once
// Sums that stop at the largest or smallest number there is. For what is read from files: numbers there may
// be anything, and a signed overflow is undefined.
#include <cmath>
#include <cstdint>
#include <limits>

namespace gradvane::record {

[[nodiscard]] constexpr std::int64_t add(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? std::numeric_limits<std::int64_t>::max()
               : std::numeric_limits<std::int64_t>::min();
}

[[nodiscard]] constexpr std::int64_t subtract(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? std::numeric_limits<std::int64_t>::max()
               : std::numeric_limits<std::int64_t>::min();
}

/// The nearest whole number; 0 for NaN.
[[nodiscard]] inline std::int64_t whole(double value) noexcept {
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  if (!(value > -kBeyond)) return std::isnan(value) ? 0 : std::numeric_limits<std::int64_t>::min();
  if (value >= kBeyond) return std::numeric_limits<std::int64_t>::max();
  return std::llround(value);
}

}  // namespace gradvane::record
