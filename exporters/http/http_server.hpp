#pragma once
// A small HTTP/1.1 server for reading: GET and HEAD, no bodies, on one thread of its own.
//
// Made to be left open next to training: whoever connects cannot make it hold more than a bounded amount
// of memory, wait for ever, or keep others from being answered.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "exporters/http/access/host_rule.hpp"
#include "exporters/http/access/web_access.hpp"
#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// Why the server closed a connection that the other side would have kept.
enum class HttpDrop : std::uint8_t { limit, header_deadline, write_deadline };

struct HttpServerOptions {
  /// For one more the connection is closed that has been idle for longest, or, where none is, has not
  /// moved on for longest.
  std::size_t max_connections = 64;
  std::size_t header_limit = 8192;  ///< bytes of request line and headers
  /// From the first byte of a request (on a fresh connection: from its accept) to the end of its
  /// headers. As requests have no body, this is all the time that a request may take to arrive.
  std::chrono::milliseconds header_deadline = std::chrono::seconds(5);
  std::chrono::milliseconds write_deadline = std::chrono::seconds(30);  ///< for a whole response
  std::chrono::milliseconds idle_deadline = std::chrono::seconds(60);   ///< between requests
  std::size_t max_streams = 16;  ///< answers that go on; one more is refused with 503
  std::chrono::milliseconds stream_pause = std::chrono::milliseconds(250);  ///< between its parts
  std::size_t gzip_from_bytes = 512;  ///< smaller bodies are sent as they are
  /// Of all bodies that wait for their readers. Beyond three quarters of it a large answer is refused
  /// with 503, and beyond all of it one that goes first; those below 64 KiB are always given, and one of
  /// any size where nothing waits.
  std::size_t max_unsent_bytes = std::size_t{64} << 20;
  /// By which names requests may call this server. Absent: by any.
  std::optional<HostRule> hosts = {};
  /// What requests have to show (access_token.hpp). Empty: nothing.
  std::string token = {};
  /// TLS, users and a limit, on ports only: a unix socket has none of them, since no other user can open it. Absent: none.
  std::shared_ptr<WebAccess> web = {};
  /// For paths that are no route. Absent: they get 404.
  HttpHandler otherwise = {};

  /// Both are called on the server's thread.
  std::function<void(int status)> answered = {};
  std::function<void(HttpDrop reason)> dropped = {};
};

struct HttpStart {
  std::uint16_t port = 0;         ///< bound port; 0 where it did not start, and on a unix socket
  std::string unix_address = {};  ///< unix:/path where it listens there; see unix_address.hpp
  std::string error = {};         ///< why, for a person; empty where it did
};

class HttpServer {
 public:
  /// Routes by exact path.
  explicit HttpServer(std::map<std::string, HttpHandler> routes, HttpServerOptions options = {});
  /// stop() with a budget of one second; in a forked child it leaves everything to the parent.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;  // one thread, one port
  HttpServer& operator=(const HttpServer&) = delete;

  /// Binds and starts the thread. A port that is taken makes it try the next ones, `port_tries` in all;
  /// port 0 lets the system choose. Does not throw. To be called once.
  /// @param address  an IPv4 or IPv6 address, "localhost" for 127.0.0.1, or unix:/path, which has no port. If a live
  ///                 process listens there it tries /path.1, /path.2 and so on. stop() removes the name.
  [[nodiscard]] HttpStart start(const std::string& address, std::uint16_t port,
                                int port_tries = 101) noexcept;

  /// As start(), on a unix socket of this user's only, whose name the caller owns. The port is 0. stop() leaves the
  /// name behind.
  /// @param directory  an open one, needed for this call only
  [[nodiscard]] HttpStart start_on_unix(int directory, const std::string& name) noexcept;

  /// Takes no further request, lets responses that are on their way finish within `budget`, and ends
  /// the thread and closes all descriptors. Idempotent. A handler that is stuck beyond that is left behind with
  /// its thread.
  void stop(std::chrono::milliseconds budget) noexcept;

  /// A program may close all descriptors that it does not know. Where ours are among them, the server ends
  /// and touches none of their numbers again, since they may belong to files of the program by now. True from
  /// then on. From the thread that calls stop(), now and then.
  [[nodiscard]] bool leave_if_closed() noexcept;

  /// For the child of a fork, where the thread does not exist: closes its copies of our sockets, so
  /// that it does not hold the port. Async-signal-safe. The object is inert afterwards.
  void close_in_child() noexcept;

  [[nodiscard]] std::uint16_t port() const noexcept;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
  bool is_child_ = false;
};

}  // namespace gradvane::exporters
