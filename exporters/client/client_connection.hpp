#pragma once
// One connection to a server, with TLS or without, in bounded time.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "exporters/http/tls_session.hpp"

namespace gradvane::exporters {

/// Each call waits until it is done, or until the limit, which may come nearer meanwhile. Then the connection is closed,
/// and the error is timed_out. One thread.
class ClientConnection {
 public:
  using Error = boost::system::error_code;
  using Tcp = boost::asio::ip::tcp;
  using Limit = std::function<std::chrono::steady_clock::time_point()>;

  /// @param tls  null: without TLS
  ClientConnection(boost::asio::io_context& context, std::unique_ptr<TlsClientSession> tls,
                   Limit limit);

  /// May be tried again after a failure.
  [[nodiscard]] Error connect(const Tcp::endpoint& endpoint);
  /// No effect without TLS.
  [[nodiscard]] Error shake_hands();
  [[nodiscard]] Error write(std::string_view text);
  /// Some of what comes. The error is eof if there is no more.
  [[nodiscard]] Error read(std::span<char> room, std::size_t& count);

  /// For a person. TLS knows better than its error says.
  [[nodiscard]] std::string words_of(const Error& error) const;

 private:
  [[nodiscard]] Error send(std::string_view bytes);
  [[nodiscard]] Error receive(std::span<char> room, std::size_t& count);
  [[nodiscard]] Error receive_for_tls();
  [[nodiscard]] Error wait(const std::optional<Error>& outcome);

  boost::asio::io_context& context_;
  Tcp::socket socket_;
  std::unique_ptr<TlsClientSession> tls_;
  Limit limit_;
};

}  // namespace gradvane::exporters
