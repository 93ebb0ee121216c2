#include "exporters/client/client_connection.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <utility>

namespace gradvane::exporters {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using Progress = TlsSession::Progress;

constexpr std::size_t kPiece = 16 * 1024;  // what one record of TLS holds

/// Asio's own sockets would be inherited by programs that the training starts.
boost::system::error_code open(asio::ip::tcp::socket& socket, const asio::ip::tcp& protocol) {
  boost::system::error_code error;
  const int descriptor =
      ::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (descriptor < 0) {
    error.assign(errno, boost::system::system_category());
    return error;
  }
  socket.assign(protocol, descriptor, error);
  if (error) ::close(descriptor);
  return error;
}

}  // namespace

ClientConnection::ClientConnection(asio::io_context& context, std::unique_ptr<TlsClientSession> tls,
                                   Limit limit)
    : context_(context), socket_(context), tls_(std::move(tls)), limit_(std::move(limit)) {}

ClientConnection::Error ClientConnection::connect(const Tcp::endpoint& endpoint) {
  if (const Error error = open(socket_, endpoint.protocol())) return error;
  std::optional<Error> outcome;
  socket_.async_connect(endpoint, [&](const Error& result) { outcome = result; });
  const Error error = wait(outcome);
  Error ignored;
  if (error) socket_.close(ignored);
  return error;
}

ClientConnection::Error ClientConnection::shake_hands() {
  if (!tls_) return {};
  while (true) {
    const Progress progress = tls_->shake_hands();
    const Error error = send(tls_->outgoing());  // the other side learns why it failed
    if (progress == Progress::done) return error;
    if (progress != Progress::wants_input)
      return make_error_code(boost::system::errc::protocol_error);
    if (error) return error;
    if (const Error ended = receive_for_tls()) return ended;
  }
}

ClientConnection::Error ClientConnection::write(std::string_view text) {
  if (!tls_) return send(text);
  if (!tls_->write(text)) return make_error_code(boost::system::errc::protocol_error);
  return send(tls_->outgoing());
}

ClientConnection::Error ClientConnection::read(std::span<char> room, std::size_t& count) {
  if (!tls_) return receive(room, count);
  while (true) {
    const Progress progress = tls_->read(room, count);
    const Error error = send(tls_->outgoing());
    if (progress == Progress::done) return {};
    if (progress == Progress::ended) return asio::error::eof;
    if (progress == Progress::failed) return make_error_code(boost::system::errc::protocol_error);
    if (error) return error;
    if (const Error ended = receive_for_tls()) return ended;
  }
}

std::string ClientConnection::words_of(const Error& error) const {
  const std::string said = tls_ ? tls_->error() : std::string();
  return said.empty() ? error.message() : said;
}

ClientConnection::Error ClientConnection::send(std::string_view bytes) {
  if (bytes.empty()) return {};
  std::optional<Error> outcome;
  asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()),
                    [&](const Error& result, std::size_t) { outcome = result; });
  return wait(outcome);
}

ClientConnection::Error ClientConnection::receive(std::span<char> room, std::size_t& count) {
  std::optional<Error> outcome;
  socket_.async_read_some(asio::buffer(room.data(), room.size()),
                          [&](const Error& result, std::size_t some) {
                            outcome = result;
                            count = some;
                          });
  return wait(outcome);
}

ClientConnection::Error ClientConnection::receive_for_tls() {
  std::array<char, kPiece> bytes;
  std::size_t count = 0;
  if (const Error error = receive(bytes, count)) return error;
  tls_->take(std::span(bytes).first(count));
  return {};
}

/// Until the operation that was begun is over, or time is up.
ClientConnection::Error ClientConnection::wait(const std::optional<Error>& outcome) {
  context_.restart();
  while (!outcome && Clock::now() < limit_()) context_.run_one_until(limit_());
  if (!outcome) context_.poll();  // what came in time, to a thread that had no core to look
  if (outcome) return *outcome;
  Error ignored;
  socket_.close(ignored);
  while (!outcome) context_.run_one();  // it refers to what is about to go
  return asio::error::timed_out;
}

}  // namespace gradvane::exporters
