#pragma once
// The two Accept headers, taken apart (RFC 9110, section 12).
#include <optional>
#include <string_view>
#include <vector>

namespace gradvane::exporters {

/// One entry of an Accept or Accept-Encoding header.
struct AcceptItem {
  std::string_view value;    ///< media type or coding, as written
  std::string_view version;  ///< parameter `version` without quotes; empty where there is none
  double q = 1;              ///< in [0, 1]; what cannot be read counts as 0
};

/// The views point into `header`.
[[nodiscard]] std::vector<AcceptItem> parse_accept(std::string_view header);

/// ASCII, case ignored.
[[nodiscard]] bool equals_ignoring_case(std::string_view a, std::string_view b) noexcept;

/// gzip may be used: named, or covered by `*`, with a q-value above 0.
[[nodiscard]] bool accepts_gzip(std::string_view accept_encoding) noexcept;

}  // namespace gradvane::exporters
