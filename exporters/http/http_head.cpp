#include "exporters/http/http_head.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>
#include <utility>

namespace gradvane::exporters {
namespace {

// Only what we serve is ever loaded, nothing frames it, and no page of another site gets hold of it. The
// page paints its icon itself: a data: image.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPolicy{{
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
     "data:; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
}};

/// Our own, and those of the web config, which come first where both have one.
void add_policy(std::string& text, const WebAccess* web) {
  static const WebAccess::Headers kNone;
  const WebAccess::Headers& given = web == nullptr ? kNone : web->headers();
  for (const auto& [name, value] : given)
    text.append("\r\n").append(name).append(": ").append(value);
  for (const auto& [name, value] : kPolicy)
    if (std::ranges::find(given, name, &std::pair<std::string, std::string>::first) == given.end())
      text.append("\r\n").append(name).append(": ").append(value);
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  const auto length = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), length};
}

}  // namespace

std::string head_of(const HttpResponse& response, const HttpHead& head) {
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  text.append(reason_phrase(response.status));
  text.append("\r\nDate: ").append(date_now());
  if (response.status != 304) {
    text.append("\r\nContent-Type: ").append(response.content_type);
    if (!response.stream) text.append("\r\nContent-Length: ").append(std::to_string(head.length));
  }
  if (head.is_packed) text.append("\r\nContent-Encoding: gzip");
  if (!response.etag.empty()) text.append("\r\nETag: ").append(response.etag);
  if (!response.location.empty()) text.append("\r\nLocation: ").append(response.location);
  if (!response.cookie.empty()) text.append("\r\nSet-Cookie: ").append(response.cookie);
  text.append("\r\nVary: ").append(response.vary);
  text.append("\r\nCache-Control: ").append(response.cache_control);
  add_policy(text, head.web);
  if (!response.challenge.empty()) text.append("\r\nWWW-Authenticate: ").append(response.challenge);
  if (response.status == 405) text.append("\r\nAllow: GET, HEAD");
  if (response.status == 503) text.append("\r\nRetry-After: 5");
  text.append(head.keep_alive ? "\r\nConnection: keep-alive" : "\r\nConnection: close");
  text.append("\r\n\r\n");
  return text;
}

std::string_view reason_phrase(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Internal Server Error";
  }
}

}  // namespace gradvane::exporters
