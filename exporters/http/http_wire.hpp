#pragma once
// The bytes of one connection, in the clear or through TLS. Private to the HTTP server.
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "exporters/http/access/web_access.hpp"

namespace gradvane::exporters {

/// The socket of a connection, and TLS upon it. Lives as long as one of its operations is pending.
class TlsPipe : public std::enable_shared_from_this<TlsPipe> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Error = boost::system::error_code;
  using Done = std::function<void(const Error&, std::size_t)>;

  /// @param session  null: no TLS
  TlsPipe(Socket socket, std::unique_ptr<TlsSession> session)
      : socket_(std::move(socket)), session_(std::move(session)) {
    Error ignored;
    if (session_) socket_.non_blocking(true, ignored);  // for say_end(), else Asio would wait
  }

  [[nodiscard]] Socket& socket() noexcept { return socket_; }
  [[nodiscard]] bool has_received() const noexcept { return has_received_; }
  /// Null without TLS, where only socket() is of use.
  [[nodiscard]] TlsSession* session() const noexcept { return session_.get(); }

  /// `done` is never called from within the call, here and below.
  void read(std::span<char> into, Done done);
  /// As much of `from` as goes into one record.
  void write(std::span<const char> from, Done done);
  /// Says that no more comes, as far as the socket takes it at once.
  void say_end() noexcept;

 private:
  /// `done` may be empty.
  void send(Done done);
  void finish(Done done, Error error, std::size_t count);

  Socket socket_;
  std::unique_ptr<TlsSession> session_;
  std::string arrived_;
  std::string sending_;  ///< with the socket
  bool is_sending_ = false;
  bool has_received_ = false;
  /// Who waits for what goes after it. The write that is on owns it: as a member it would keep this alive by itself.
  std::weak_ptr<Done> waiting_;
};

/// What Beast reads from and Asio writes to: an AsyncReadStream and AsyncWriteStream. At most one read and one write at a
/// time.
class HttpWire {
 public:
  using Socket = TlsPipe::Socket;
  using Error = TlsPipe::Error;
  using executor_type = Socket::executor_type;

  HttpWire(Socket socket, std::unique_ptr<TlsSession> session)
      : pipe_(std::make_shared<TlsPipe>(std::move(socket), std::move(session))) {}

  [[nodiscard]] executor_type get_executor() { return socket().get_executor(); }
  [[nodiscard]] Socket& socket() const noexcept { return pipe_->socket(); }
  /// More can be read without waiting for the network.
  [[nodiscard]] bool has_pending() const {
    return pipe_->session() && pipe_->session()->has_pending();
  }
  /// Something of TLS has come.
  [[nodiscard]] bool has_received() const noexcept { return pipe_->has_received(); }
  /// TLS failed since the other side speaks HTTP without it.
  [[nodiscard]] bool was_plain_http() const {
    return pipe_->session() && pipe_->session()->was_plain_http();
  }
  void say_end() const noexcept { pipe_->say_end(); }

  template <typename Buffers, typename Handler>
  auto async_read_some(const Buffers& buffers, Handler&& handler) {
    return boost::asio::async_initiate<Handler, void(Error, std::size_t)>(
        [pipe = pipe_](auto done, const Buffers& into) {
          if (!pipe->session()) return pipe->socket().async_read_some(into, std::move(done));
          const auto first = first_of<boost::asio::mutable_buffer>(into);
          pipe->read({static_cast<char*>(first.data()), first.size()}, copyable(std::move(done)));
        },
        handler, buffers);
  }

  template <typename Buffers, typename Handler>
  auto async_write_some(const Buffers& buffers, Handler&& handler) {
    return boost::asio::async_initiate<Handler, void(Error, std::size_t)>(
        [pipe = pipe_](auto done, const Buffers& from) {
          if (!pipe->session()) return pipe->socket().async_write_some(from, std::move(done));
          const auto first = first_of<boost::asio::const_buffer>(from);
          pipe->write({static_cast<const char*>(first.data()), first.size()},
                      copyable(std::move(done)));
        },
        handler, buffers);
  }

 private:
  /// One that is not empty, where there is one.
  template <typename Buffer, typename Buffers>
  static Buffer first_of(const Buffers& buffers) {
    for (auto i = boost::asio::buffer_sequence_begin(buffers);
         i != boost::asio::buffer_sequence_end(buffers); ++i)
      if (Buffer(*i).size() > 0) return Buffer(*i);
    return Buffer();
  }

  /// Handlers of Asio can only be moved.
  template <typename Handler>
  static TlsPipe::Done copyable(Handler handler) {
    return [held = std::make_shared<Handler>(std::move(handler))](
               const Error& error, std::size_t count) { std::move (*held)(error, count); };
  }

  std::shared_ptr<TlsPipe> pipe_;
};

}  // namespace gradvane::exporters
