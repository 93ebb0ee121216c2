#pragma once
// The value of an Authorization header (RFC 9110, 11.6.2).
#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <optional>
#include <string_view>

namespace gradvane::exporters {

[[nodiscard]] inline std::string_view without_blanks(std::string_view text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

/// What stands behind `scheme`, without blanks. Absent for another scheme.
/// @param scheme  in any case, without a blank
[[nodiscard]] inline std::optional<std::string_view> credentials_after(
    std::string_view scheme, std::string_view authorization) noexcept {
  const auto rest = authorization.substr(std::min(scheme.size(), authorization.size()));
  if (!boost::beast::iequals(authorization.substr(0, scheme.size()), scheme) ||
      !rest.starts_with(' '))
    return std::nullopt;
  return without_blanks(rest);
}

}  // namespace gradvane::exporters
