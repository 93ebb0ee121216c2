#pragma once
// A magnitude in 16 bits: the upper part of a float without its sign. Larger magnitudes have larger codes,
// so the largest of two is found without decoding.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace gradvane::exporters {

using MagnitudeCode = std::uint16_t;

/// Above every code of a number, but never chosen as the largest: see larger().
inline constexpr MagnitudeCode kNoMagnitude = 0xFFFF;

/// Within 0.2 % of the number between 1.2e-38 and 3.4e38. Larger ones become 3.4e38, smaller ones lose
/// precision, and what is not zero never becomes zero. @param value  not negative, or there is none
[[nodiscard]] inline MagnitudeCode code_of(std::optional<double> value) noexcept {
  if (!value || !(*value >= 0)) return kNoMagnitude;
  constexpr std::uint32_t kLargest = 0xFEFF;  // the next one up is infinity's
  const double held = std::min(*value, static_cast<double>(std::numeric_limits<float>::max()));
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(held));
  const std::uint32_t rounded = std::min((bits + 0x4000U) >> 15U, kLargest);
  return static_cast<MagnitudeCode>(rounded == 0 && *value > 0 ? 1 : rounded);
}

[[nodiscard]] inline std::optional<double> magnitude_of(MagnitudeCode code) noexcept {
  if (code == kNoMagnitude) return std::nullopt;
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(code) << 15U));
}

[[nodiscard]] inline MagnitudeCode larger(MagnitudeCode a, MagnitudeCode b) noexcept {
  if (a == kNoMagnitude) return b;
  if (b == kNoMagnitude) return a;
  return std::max(a, b);
}

[[nodiscard]] inline MagnitudeCode smaller(MagnitudeCode a, MagnitudeCode b) noexcept {
  return std::min(a, b);  // what was not measured is above every number
}

}  // namespace gradvane::exporters
