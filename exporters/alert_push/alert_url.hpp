#pragma once
// Where Alertmanager is.
#include <string>
#include <string_view>

#include "exporters/client/web_place.hpp"

namespace gradvane::exporters {

struct AlertUrl : WebPlace {
  bool has_tls = false;
  std::string target;  ///< path of the API, with the prefix that the URL had
};

/// Takes "http://host:port/prefix", or https. Throws std::invalid_argument, which says what to change.
[[nodiscard]] AlertUrl parse_alert_url(std::string_view url);

/// Whether it can stand in an alert as a link: Alertmanager refuses an alert for a link that is
/// none.
[[nodiscard]] bool is_web_link(std::string_view url) noexcept;

}  // namespace gradvane::exporters
