#include "exporters/alert_push/alert_url.hpp"

#include <algorithm>
#include <stdexcept>

namespace gradvane::exporters {
namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::string_view kHttps = "https://";
constexpr std::string_view kPath = "/api/v2/alerts";

[[noreturn]] void refuse(std::string_view url, const std::string& why) {
  throw std::invalid_argument("Alertmanager's URL '" + std::string(url) + "': " + why);
}

bool is_visible(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

AlertUrl parse_alert_url(std::string_view url) {
  const bool has_tls = url.starts_with(kHttps);
  if (!has_tls && !url.starts_with(kHttp))
    refuse(url, "it begins with http:// or https://, as in http://host:9093");
  if (!is_visible(url)) refuse(url, "blanks and characters beyond ASCII are not allowed");
  const std::string_view rest = url.substr(has_tls ? kHttps.size() : kHttp.size());
  if (rest.find_first_of("?#") != std::string_view::npos)
    refuse(url, "a query or a fragment is not allowed");

  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view authority = rest.substr(0, slash);
  std::string_view prefix = rest.substr(slash);
  if (authority.find('@') != std::string_view::npos)
    refuse(
        url.substr(url.find('@')),
        "a user and a password do not stand here, where the run's page shows them; put them into "
        "the file that alertmanager_http_config names");

  AlertUrl parsed;
  parsed.has_tls = has_tls;
  try {
    static_cast<WebPlace&>(parsed) = parse_web_place(authority, has_tls ? 443 : 80);
  } catch (const std::invalid_argument& error) {
    refuse(url, error.what());
  }
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (prefix.ends_with(kPath)) prefix.remove_suffix(kPath.size());
  parsed.target = std::string(prefix) + std::string(kPath);
  return parsed;
}

bool is_web_link(std::string_view url) noexcept {
  const bool known = url.starts_with("http://") || url.starts_with("https://");
  return known && is_visible(url) && url.find_first_of("\"<>\\^`{|}") == std::string_view::npos;
}

}  // namespace gradvane::exporters
