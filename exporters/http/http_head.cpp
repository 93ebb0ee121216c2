#include "exporters/http/http_head.hpp"

#include <array>
#include <ctime>
#include <string_view>

namespace gradvane::exporters {
namespace {

// Only what we serve is ever loaded, nothing frames it, and no page of another site gets hold of it. The
// page paints its icon itself: a data: image.
constexpr std::string_view kPolicy =
    "\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
    "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer"
    "\r\nCross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin";

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
  text.append(kPolicy);
  if (response.status == 401) text.append("\r\nWWW-Authenticate: Bearer realm=\"gradvane\"");
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
