#include "exporters/alert_push/alert_url.hpp"

#include <algorithm>
#include <boost/asio/ip/address_v6.hpp>
#include <charconv>
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

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

std::uint16_t parse_port(std::string_view url, std::string_view text) {
  std::uint16_t port = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, port);
  if (error != std::errc() || stop != end || port == 0) refuse(url, "the port is 1 to 65535");
  return port;
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
  parsed.authority = authority;
  parsed.has_tls = has_tls;
  if (has_tls) parsed.port = 443;
  std::string_view after_host;
  if (authority.starts_with('[')) {
    const std::size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) refuse(url, "an IPv6 address ends with ]");
    parsed.host = authority.substr(1, bracket - 1);
    after_host = authority.substr(bracket + 1);
    boost::system::error_code error;
    (void)boost::asio::ip::make_address_v6(parsed.host, error);
    if (error) refuse(url, "'" + parsed.host + "' is not an IPv6 address");
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    parsed.host = authority.substr(0, colon);
    after_host = authority.substr(colon);
    if (parsed.host.empty() || !std::ranges::all_of(parsed.host, is_name_character))
      refuse(url, "'" + parsed.host + "' is not the name of a host");
  }
  if (!after_host.empty()) {
    if (after_host.front() != ':') refuse(url, "a colon comes before the port");
    parsed.port = parse_port(url, after_host.substr(1));
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
