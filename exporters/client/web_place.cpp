#include "exporters/client/web_place.hpp"

#include <algorithm>
#include <boost/asio/ip/address_v6.hpp>
#include <charconv>
#include <stdexcept>

namespace gradvane::exporters {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

std::uint16_t parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, port);
  if (error != std::errc() || stop != end || port == 0) refuse("the port is 1 to 65535");
  return port;
}

}  // namespace

WebPlace parse_web_place(std::string_view authority, std::uint16_t usual_port) {
  WebPlace place{.host = {}, .port = usual_port, .authority = std::string(authority)};
  std::string_view after_host;
  if (authority.starts_with('[')) {
    const std::size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) refuse("an IPv6 address ends with ]");
    place.host = authority.substr(1, bracket - 1);
    after_host = authority.substr(bracket + 1);
    boost::system::error_code error;
    (void)boost::asio::ip::make_address_v6(place.host, error);
    if (error) refuse("'" + place.host + "' is not an IPv6 address");
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    place.host = authority.substr(0, colon);
    after_host = authority.substr(colon);
    if (place.host.empty() || !std::ranges::all_of(place.host, is_name_character))
      refuse("'" + place.host + "' is not the name of a host");
  }
  if (!after_host.empty()) {
    if (after_host.front() != ':') refuse("a colon comes before the port");
    place.port = parse_port(after_host.substr(1));
  }
  return place;
}

}  // namespace gradvane::exporters
