#pragma once
// One connection of the HTTP server. Private to http_server.cpp and http_connection.cpp.
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "exporters/http/access/access_token.hpp"
#include "exporters/http/http_server.hpp"
#include "exporters/http/http_wire.hpp"

namespace gradvane::exporters {

/// What all connections share. Lives on the server's thread, and longer than they do.
struct HttpShared {
  std::map<std::string, HttpHandler> routes;
  HttpServerOptions options;
  AccessToken token = {};
  bool is_stopping = false;
  std::size_t streams = 0;  ///< answers that go on
  std::size_t unsent = 0;   ///< bytes of bodies that wait for their readers
};

/// How much is lost by closing a connection now, least first.
enum class HttpStanding : std::uint8_t {
  idle,       ///< between requests
  waiting,    ///< for its password to be checked
  silent,     ///< fresh, and has not said a word
  reading,    ///< has not said yet what it wants
  answering,  ///< in an answer, or a stream
};

/// Its right to stay. Among those of one standing the one that has not moved for longest has the least.
struct HttpClaim {
  HttpStanding standing = HttpStanding::idle;
  std::chrono::steady_clock::time_point since;
  auto operator<=>(const HttpClaim&) const = default;
};

/// Reads requests and answers them, one after the other. Lives as long as an operation of its is pending;
/// closing the socket ends them all.
class HttpConnection {
 public:
  HttpConnection() = default;
  virtual ~HttpConnection() = default;
  HttpConnection(const HttpConnection&) = delete;  // owns a socket
  HttpConnection& operator=(const HttpConnection&) = delete;

  virtual void start() = 0;
  /// Closes at once where nothing is being answered, else after the answer.
  virtual void finish() = 0;
  [[nodiscard]] virtual HttpClaim claim() const = 0;
  /// Closes at once, to make room for another one.
  virtual void evict() = 0;
};

/// `closed` is called on destruction, right before the descriptor is closed.
[[nodiscard]] std::shared_ptr<HttpConnection> make_http_connection(HttpShared& shared,
                                                                   HttpWire wire,
                                                                   std::function<void()> closed);

}  // namespace gradvane::exporters
