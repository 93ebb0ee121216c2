#pragma once
// Numbers and times for people to read, on a terminal too.
#include <cstdint>
#include <optional>
#include <string>

namespace gradvane::exporters {

/// Four significant digits, "NaN" or "+Inf" where it is one of those, an en dash where it was not measured.
[[nodiscard]] std::string human_number(const std::optional<double>& value);
/// 12,345,678
[[nodiscard]] std::string human_count(std::int64_t value);
/// 340 ms, 12.5 s, 4 min 10 s, 3 h 5 min
[[nodiscard]] std::string human_duration(double seconds);
/// 2026-11-21 03:55:10 UTC, from seconds since the epoch
[[nodiscard]] std::string human_time(double seconds);

}  // namespace gradvane::exporters
