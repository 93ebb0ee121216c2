#include "exporters/http/http_wire.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

namespace gradvane::exporters {

namespace {

namespace asio = boost::asio;

constexpr std::size_t kRecord = 16 * 1024;  // what one record of TLS holds
constexpr std::size_t kMostUnsent =
    64 * 1024;  // alerts, to one that asks for them and does not read

}  // namespace

void TlsPipe::read(std::span<char> into, Done done) {
  std::size_t count = 0;
  const TlsSession::Progress progress = session_->read(into, count);
  send(nullptr);  // an answer of the handshake, or an alert
  if (is_sending_ && session_->unsent() > kMostUnsent)
    return finish(std::move(done), asio::error::no_buffer_space, 0);
  switch (progress) {
    case TlsSession::Progress::done:
      return finish(std::move(done), {}, count);
    case TlsSession::Progress::ended:
      return finish(std::move(done), asio::error::eof, 0);
    case TlsSession::Progress::failed:
      return finish(std::move(done), asio::error::connection_aborted, 0);
    case TlsSession::Progress::wants_input:
      break;
  }
  arrived_.resize(kRecord);
  const auto buffer = asio::buffer(arrived_);
  socket_.async_read_some(buffer, [self = shared_from_this(), into, done = std::move(done)](
                                      const Error& error, std::size_t size) {
    if (error) return done(error, 0);
    self->has_received_ = true;
    self->session_->take({self->arrived_.data(), size});
    self->arrived_ = {};
    self->read(into, done);
  });
}

void TlsPipe::write(std::span<const char> from, Done done) {
  const std::size_t count = std::min(from.size(), kRecord);
  if (!session_->write(from.first(count)))
    return finish(std::move(done), asio::error::connection_aborted, 0);
  send([count, done = std::move(done)](const Error& error, std::size_t) {
    done(error, error ? 0 : count);
  });
}

/// One piece at a time is with the socket. What is made meanwhile goes after it.
void TlsPipe::send(Done done) {
  if (is_sending_) {
    if (const auto waiting = waiting_.lock(); done && waiting) *waiting = std::move(done);
    return;
  }
  sending_ = session_->outgoing();
  if (sending_.empty()) {
    if (done) finish(std::move(done), {}, 0);
    return;
  }
  is_sending_ = true;
  const auto next = std::make_shared<Done>();
  waiting_ = next;
  const auto buffer = asio::buffer(sending_);
  asio::async_write(
      socket_, buffer,
      [self = shared_from_this(), next, done = std::move(done)](const Error& error, std::size_t) {
        self->is_sending_ = false;
        self->sending_ = {};
        if (error && *next) (*next)(error, 0);
        if (!error) self->send(std::move(*next));
        if (done) done(error, 0);
      });
}

void TlsPipe::finish(Done done, Error error, std::size_t count) {
  asio::post(socket_.get_executor(),
             [done = std::move(done), error, count] { done(error, count); });
}

void TlsPipe::say_end() noexcept try {
  if (!session_ || is_sending_) return;
  session_->end();
  const std::string last = session_->outgoing();
  Error ignored;
  if (!last.empty() && socket_.is_open()) socket_.write_some(asio::buffer(last), ignored);
} catch (...) {  // no memory: the other side sees the connection end
}

}  // namespace gradvane::exporters
