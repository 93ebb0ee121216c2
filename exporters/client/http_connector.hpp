#pragma once
// Connections to one host and port, each in bounded time.
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "exporters/client/client_connection.hpp"
#include "exporters/client/resolve_host.hpp"
#include "exporters/client/web_place.hpp"
#include "exporters/http/tls_session.hpp"

namespace gradvane::exporters {

/// Threading: connect(), and what it returns, from one thread; hurry() from any.
class HttpConnector {
 public:
  using Clock = std::chrono::steady_clock;

  HttpConnector(WebPlace place, ResolveHost resolve)
      : place_(std::move(place)), resolve_(std::move(resolve)) {}
  HttpConnector(const HttpConnector&) = delete;  // its operations point to it
  HttpConnector& operator=(const HttpConnector&) = delete;

  struct Connected {
    std::unique_ptr<ClientConnection> connection = nullptr;  ///< null: there is none
    std::string error = {};                                  ///< then why, for a person
  };
  /// To the first of the host's addresses that answers. It and all that is done with the connection last until
  /// `deadline`; only finding the addresses may take longer. Throws std::bad_alloc only, or what the resolver throws.
  /// @param tls  null: without TLS
  [[nodiscard]] Connected connect(std::unique_ptr<TlsClientSession> tls,
                                  Clock::time_point deadline);

  /// From now on nothing lasts longer than until `deadline`, and known addresses are good enough.
  void hurry(Clock::time_point deadline) noexcept;

 private:
  using Error = boost::system::error_code;

  void find_addresses();
  [[nodiscard]] Error connect_to_any(ClientConnection& connection);
  [[nodiscard]] Clock::time_point limit() const noexcept;

  WebPlace place_;
  ResolveHost resolve_;
  std::vector<std::string> addresses_;
  bool is_stale_ = true;
  Clock::time_point deadline_{};
  std::atomic<Clock::time_point> hurry_{Clock::time_point::max()};
  boost::asio::io_context context_{1};
};

}  // namespace gradvane::exporters
