#pragma once
// One connection of the HTTP server. Private to http_server.cpp and http_connection.cpp.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <map>
#include <memory>
#include <string>

#include "exporters/http_server.hpp"

namespace gradvane::exporters {

/// What all connections share. Lives on the server's thread, and longer than they do.
struct HttpShared {
  std::map<std::string, HttpHandler> routes;
  HttpServerOptions options;
  bool is_stopping = false;
  std::size_t streams = 0;  ///< answers that go on
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
};

/// `closed` is called on destruction, right before the descriptor is closed.
[[nodiscard]] std::shared_ptr<HttpConnection> make_http_connection(
    HttpShared& shared, boost::asio::ip::tcp::socket socket, std::function<void()> closed);

}  // namespace gradvane::exporters
