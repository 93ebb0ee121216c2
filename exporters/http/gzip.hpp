#pragma once
// gzip for HTTP bodies.
#include <optional>
#include <string>
#include <string_view>

namespace gradvane::exporters {

/// zlib at level 1: metrics shrink about ninefold at the least cost. Empty where zlib is out of memory.
[[nodiscard]] std::optional<std::string> gzip(std::string_view text);
/// Empty where it is not gzip, not whole, or there is no memory.
[[nodiscard]] std::optional<std::string> gunzip(std::string_view packed);

}  // namespace gradvane::exporters
