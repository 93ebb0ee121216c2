#pragma once
// What a route is asked, and what it answers.
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gradvane::exporters {

struct HttpRequest {
  std::string path;   ///< as sent, without the query; routes match it byte by byte
  std::string query;  ///< what stood after `?`, still percent-encoded
  std::string accept;
  std::string last_event_id = {};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  /// In place of `body`: gzip's bytes, which live as long as the program. Unpacked for who cannot read them.
  std::string_view packed = {};
  /// In place of `body`: an answer that goes on until one side ends it. Called four times a second, on the
  /// server's thread, unless what it returned last is still on its way. What it returns is sent. Absent: it is over.
  std::function<std::optional<std::string>()> stream = {};
  std::string etag = {};       ///< with its quotes; a request that names it gets 304
  std::string location = {};   ///< of a redirect
  std::string cookie = {};     ///< for the browser to keep
  std::string challenge = {};  ///< of a 401: what is asked for, as WWW-Authenticate says it
  std::string vary = "Accept-Encoding";
  std::string cache_control = "no-store";
  /// Called on the server's thread once all of the response is with the kernel; never for HEAD.
  std::function<void()> delivered = {};
  /// It may use the room that is kept where other large answers are refused.
  bool goes_first = false;
};

/// Called on the server's thread. What it throws becomes a 500.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

/// The words that belong to a status code.
[[nodiscard]] std::string_view reason_phrase(int status) noexcept;

}  // namespace gradvane::exporters
