#include "exporters/http_connection.hpp"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <ctime>
#include <optional>

#include "exporters/accept_header.hpp"
#include "exporters/gzip.hpp"

namespace gradvane::exporters {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// After an answer to a request that was not read to its end, closing would reset the connection and
// the other side might never see the answer. So a little more is read and thrown away.
constexpr std::chrono::milliseconds kDrainTime{500};
constexpr std::size_t kDrainBytes = 64 * 1024;

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  const auto length = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), length};
}

std::string text_of(beast::string_view view) { return {view.data(), view.size()}; }

class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpShared& shared, tcp::socket socket, std::function<void()> closed)
      : shared_(shared),
        closed_(std::move(closed)),
        socket_(std::move(socket)),
        deadline_(socket_.get_executor()) {}

  ~Connection() override { close(); }

  void start() override { read_request(); }

  void finish() override {
    if (is_answering_) {
      keep_alive_ = false;
    } else {
      close();
    }
  }

 private:
  using Milliseconds = std::chrono::milliseconds;

  void close() {
    disarm();
    if (closed_) std::exchange(closed_, nullptr)();
    error_code ignored;
    socket_.close(ignored);
  }

  /// Closes with a reset, so that the kernel does not go on holding what was not yet taken.
  void abort() {
    error_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    close();
  }

  /// Aborts the connection after `time`, unless arm() or disarm() come before.
  void arm(Milliseconds time, std::optional<HttpDrop> reason) {
    disarm();
    deadline_.expires_after(time);
    deadline_.async_wait(
        [self = shared_from_this(), turn = turn_, reason](const error_code& error) {
          if (error || turn != self->turn_) return;
          if (reason && self->shared_.options.dropped) self->shared_.options.dropped(*reason);
          self->abort();
        });
  }

  void disarm() {
    ++turn_;  // cancelling does not reach a wait that is over and queued
    try {
      deadline_.cancel();
    } catch (...) {  // nothing is lost: the turn has changed
    }
  }

  void wait_for_next() {
    is_answering_ = false;
    if (shared_.is_stopping) return close();
    if (buffer_.size() > 0) return read_request();  // a pipelined one is here already
    arm(shared_.options.idle_deadline, std::nullopt);
    socket_.async_wait(tcp::socket::wait_read,
                       [self = shared_from_this()](const error_code& error) {
                         if (error) return self->close();
                         self->read_request();
                       });
  }

  void read_request() {
    arm(shared_.options.header_deadline, HttpDrop::header_deadline);
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(shared_.options.header_limit));
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              self->on_header(error);
                            });
  }

  void on_header(const error_code& error) {
    disarm();
    is_answering_ = true;
    keep_alive_ = false;
    is_head_ = false;
    if (error) {
      if (error == http::error::end_of_stream || error == asio::error::operation_aborted) {
        return close();
      }
      if (error == http::error::header_limit || error == http::error::buffer_overflow) {
        return refuse(431);
      }
      if (error == http::error::body_limit) return refuse(413);
      if (error.category() == http::make_error_code(http::error::bad_method).category()) {
        return refuse(400);
      }
      return close();
    }

    const auto& request = parser_->get();
    if (request.count(http::field::transfer_encoding) > 0) return refuse(400);
    const auto length = request.find(http::field::content_length);
    if (length != request.end() && length->value() != "0") return refuse(413);
    if (request.count(http::field::content_length) > 1) return refuse(400);

    keep_alive_ = request.keep_alive() && !shared_.is_stopping;
    is_head_ = request.method() == http::verb::head;
    if (!is_head_ && request.method() != http::verb::get) {
      return respond({.status = 405, .body = "only GET and HEAD are allowed here\n"}, {});
    }
    respond(answer(request), text_of(request[http::field::accept_encoding]));
  }

  HttpResponse answer(const http::request_header<>& request) const {
    const std::string target = text_of(request.target());
    const auto question = target.find('?');
    const std::string path = target.substr(0, question);
    const auto route = shared_.routes.find(path);
    if (route == shared_.routes.end()) return {.status = 404, .body = "not found\n"};
    try {
      return route->second(
          {.path = path,
           .query = question == std::string::npos ? "" : target.substr(question + 1),
           .accept = text_of(request[http::field::accept])});
    } catch (...) {
      return {.status = 500, .body = "this page could not be made\n"};
    }
  }

  /// For a request that cannot be followed to its end: the connection closes after the answer.
  void refuse(int status) {
    is_refused_ = true;
    keep_alive_ = false;
    is_head_ = false;
    std::string why(reason_phrase(status));
    respond({.status = status, .body = why + '\n'}, {});
  }

  void respond(HttpResponse response, const std::string& accept_encoding) {
    std::string_view encoding;
    if (response.body.size() >= shared_.options.gzip_from_bytes && accepts_gzip(accept_encoding)) {
      if (auto packed = gzip(response.body)) {
        response.body = std::move(*packed);
        encoding = "Content-Encoding: gzip\r\n";
      }
    }
    head_ = "HTTP/1.1 " + std::to_string(response.status) + ' ';
    head_.append(reason_phrase(response.status));
    head_.append("\r\nDate: ").append(date_now());
    head_.append("\r\nContent-Type: ").append(response.content_type);
    head_.append("\r\nContent-Length: ").append(std::to_string(response.body.size()));
    head_.append("\r\n").append(encoding);
    head_.append("Vary: ").append(response.vary);
    head_.append("\r\nCache-Control: ").append(response.cache_control);
    // Nothing but our own style sheet and pages is ever loaded, framed or run.
    head_.append("\r\nContent-Security-Policy: default-src 'self'; frame-ancestors 'none'");
    head_.append("\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer");
    if (response.status == 405) head_.append("\r\nAllow: GET, HEAD");
    head_.append(keep_alive_ ? "\r\nConnection: keep-alive" : "\r\nConnection: close");
    head_.append("\r\n\r\n");

    body_ = is_head_ ? std::string() : std::move(response.body);
    delivered_ = is_head_ ? nullptr : std::move(response.delivered);
    if (shared_.options.answered) shared_.options.answered(response.status);
    send();
  }

  void send() {
    arm(shared_.options.write_deadline, HttpDrop::write_deadline);
    const std::array<asio::const_buffer, 2> parts{asio::buffer(head_), asio::buffer(body_)};
    asio::async_write(socket_, parts,
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (error) return self->close();
                        self->on_sent();
                      });
  }

  void on_sent() {
    disarm();
    body_ = {};  // a large one must not stay while the connection idles
    if (delivered_) std::exchange(delivered_, nullptr)();
    if (keep_alive_) return wait_for_next();
    if (!is_refused_) return close();
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    is_answering_ = false;
    arm(kDrainTime, std::nullopt);
    drain(0);
  }

  void drain(std::size_t so_far) {
    socket_.async_read_some(asio::buffer(drained_), [self = shared_from_this(), so_far](
                                                        const error_code& error, std::size_t more) {
      if (error || so_far + more > kDrainBytes) return self->close();
      self->drain(so_far + more);
    });
  }

  HttpShared& shared_;
  std::function<void()> closed_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  std::uint64_t turn_ = 0;
  beast::flat_buffer buffer_{16 * 1024};  // headers, and what a client pipelines behind them
  std::optional<http::request_parser<http::empty_body>> parser_;
  bool is_answering_ = false;
  bool keep_alive_ = false;
  bool is_head_ = false;
  bool is_refused_ = false;
  std::string head_;
  std::string body_;
  std::function<void()> delivered_;
  std::array<char, 1024> drained_{};
};

}  // namespace

std::string_view reason_phrase(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::shared_ptr<HttpConnection> make_http_connection(HttpShared& shared, tcp::socket socket,
                                                     std::function<void()> closed) {
  return std::make_shared<Connection>(shared, std::move(socket), std::move(closed));
}

}  // namespace gradvane::exporters
