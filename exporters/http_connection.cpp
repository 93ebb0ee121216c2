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

// Only what we serve is ever loaded, and nothing frames it. The page paints its icon itself: a data: image.
constexpr std::string_view kPolicy =
    "\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
    "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer";

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
        deadline_(socket_.get_executor()),
        pause_(socket_.get_executor()) {}

  ~Connection() override { close(); }

  void start() override { read_request(); }

  void finish() override {
    if (stream_) {
      if (!is_sending_) send_part();  // what there is to say at the end; closes after it
    } else if (is_answering_) {
      keep_alive_ = false;
    } else {
      close();
    }
  }

 private:
  using Milliseconds = std::chrono::milliseconds;

  void close() {
    disarm();
    if (stream_) end_stream();
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
      const std::string known = text_of(request[http::field::if_none_match]);
      HttpResponse response =
          route->second({.path = path,
                         .query = question == std::string::npos ? "" : target.substr(question + 1),
                         .accept = text_of(request[http::field::accept]),
                         .last_event_id = text_of(request["Last-Event-ID"])});
      if (response.etag.empty() || known.find(response.etag) == std::string::npos) return response;
      response.status = 304;
      response.packed = {};
      response.body.clear();
      return response;
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
    if (response.stream && shared_.streams >= shared_.options.max_streams) {
      response = {.status = 503, .body = "as many viewers as there may be\n"};
    }
    const bool is_packed = pack(response, accepts_gzip(accept_encoding));
    if (response.stream) keep_alive_ = false;
    head_ = "HTTP/1.1 " + std::to_string(response.status) + ' ';
    head_.append(reason_phrase(response.status));
    head_.append("\r\nDate: ").append(date_now());
    if (response.status != 304) {
      head_.append("\r\nContent-Type: ").append(response.content_type);
      if (!response.stream)
        head_.append("\r\nContent-Length: ").append(std::to_string(response.body.size()));
    }
    if (is_packed) head_.append("\r\nContent-Encoding: gzip");
    if (!response.etag.empty()) head_.append("\r\nETag: ").append(response.etag);
    head_.append("\r\nVary: ").append(response.vary);
    head_.append("\r\nCache-Control: ").append(response.cache_control);
    head_.append(kPolicy);
    if (response.status == 405) head_.append("\r\nAllow: GET, HEAD");
    if (response.status == 503) head_.append("\r\nRetry-After: 5");
    head_.append(keep_alive_ ? "\r\nConnection: keep-alive" : "\r\nConnection: close");
    head_.append("\r\n\r\n");

    body_ = is_head_ ? std::string() : std::move(response.body);
    delivered_ = is_head_ ? nullptr : std::move(response.delivered);
    if (!is_head_ && response.stream) begin_stream(std::move(response.stream));
    if (shared_.options.answered) shared_.options.answered(response.status);
    send();
  }

  /// True where the body is gzip's.
  [[nodiscard]] bool pack(HttpResponse& response, bool may_be_packed) const {
    if (!response.packed.empty()) {
      if (may_be_packed) {
        response.body = response.packed;
      } else {
        response.body = gunzip(response.packed).value_or("");
      }
      return may_be_packed;
    }
    if (!may_be_packed || response.body.size() < shared_.options.gzip_from_bytes) return false;
    auto packed = gzip(response.body);
    if (packed) response.body = std::move(*packed);
    return packed.has_value();
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
    if (stream_) return send_part();
    if (delivered_) std::exchange(delivered_, nullptr)();
    if (keep_alive_) return wait_for_next();
    if (!is_refused_) return close();
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    is_answering_ = false;
    arm(kDrainTime, std::nullopt);
    drain(0);
  }

  void begin_stream(std::function<std::string()> stream) {
    stream_ = std::move(stream);
    ++shared_.streams;
    is_sending_ = true;  // its headers
    watch_for_end();
  }

  void end_stream() {
    stream_ = nullptr;
    --shared_.streams;
    try {
      pause_.cancel();
    } catch (...) {  // it finds the stream gone
    }
  }

  /// Whoever left is noticed now, and not when there is something to send. What is sent here is not read.
  void watch_for_end() {
    socket_.async_read_some(asio::buffer(drained_),
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (error) return self->close();
                              if (self->stream_) self->watch_for_end();
                            });
  }

  void send_part() {
    is_sending_ = false;
    try {
      body_ = stream_();
    } catch (...) {  // no memory for this part; the next one may be smaller
      body_.clear();
    }
    if (body_.empty()) return shared_.is_stopping ? close() : pause();
    is_sending_ = true;
    arm(shared_.options.write_deadline, HttpDrop::write_deadline);
    asio::async_write(socket_, asio::buffer(body_),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (error || !self->stream_) return self->close();
                        self->disarm();
                        self->is_sending_ = false;
                        if (self->shared_.is_stopping) return self->close();
                        self->pause();
                      });
  }

  void pause() {
    pause_.expires_after(shared_.options.stream_pause);
    pause_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && self->stream_ && !self->is_sending_) self->send_part();
    });
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
  std::function<std::string()> stream_;
  asio::steady_timer pause_;
  bool is_sending_ = false;  ///< a part of the stream
  std::array<char, 1024> drained_{};
};

}  // namespace

std::string_view reason_phrase(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
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
