#include "exporters/http/http_connection.hpp"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <optional>

#include "exporters/http/accept_header.hpp"
#include "exporters/http/access/http_admission.hpp"
#include "exporters/http/http_answer.hpp"
#include "exporters/http/http_head.hpp"

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

// A password that is not known yet waits for its turn.
constexpr std::chrono::milliseconds kAskAgain{20};
constexpr std::chrono::seconds kPasswordPatience{15};

// Answers of this size are never refused for want of room: as many of them as there are connections take
// little, and a probe that asks whether the process is well must be answered.
constexpr std::size_t kSmallAnswer = 64 * 1024;

std::string text_of(beast::string_view view) { return {view.data(), view.size()}; }

class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpShared& shared, HttpWire wire, std::function<void()> closed)
      : shared_(shared),
        closed_(std::move(closed)),
        wire_(std::move(wire)),
        deadline_(wire_.get_executor()),
        pause_(wire_.get_executor()) {}

  ~Connection() override { close(); }

  void start() override { read_request(); }

  void finish() override {
    if (stream_) {
      if (!is_sending_) send_part();  // what there is to say at the end; closes after it
    } else if (is_answering_ && !is_waiting_) {
      keep_alive_ = false;
    } else {
      close();
    }
  }

  [[nodiscard]] HttpClaim claim() const override {
    if (is_waiting_) return {HttpStanding::waiting, since_};
    if (stream_ || is_answering_) return {HttpStanding::answering, since_};
    error_code ignored;
    const bool has_spoken = wire_.socket().available(ignored) > 0;  // we have not looked yet
    if (has_spoken || (!is_idle_ && (wire_.has_received() || buffer_.size() > 0)))
      return {HttpStanding::reading, since_};
    return {is_idle_ ? HttpStanding::idle : HttpStanding::silent, since_};
  }

  void evict() override { claim().standing == HttpStanding::idle ? close() : abort(); }

 private:
  using Milliseconds = std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;

  void close() {
    disarm();
    hold(0);
    if (stream_) end_stream();
    if (closed_) std::exchange(closed_, nullptr)();
    wire_.say_end();
    error_code ignored;
    wire_.socket().close(ignored);
  }

  /// Closes with a reset, so that the kernel does not go on holding what was not yet taken.
  void abort() {
    error_code ignored;
    wire_.socket().set_option(asio::socket_base::linger(true, 0), ignored);
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

  /// Says how many bytes of an answer wait here for their reader.
  void hold(std::size_t bytes) noexcept {
    shared_.unsent += bytes - held_;
    held_ = bytes;
  }

  void wait_for_next() {
    is_answering_ = false;
    since_ = Clock::now();
    if (shared_.is_stopping) return close();
    if (buffer_.size() > 0 || wire_.has_pending()) return read_request();  // one is here already
    is_idle_ = true;
    arm(shared_.options.idle_deadline, std::nullopt);
    wire_.socket().async_wait(tcp::socket::wait_read,
                              [self = shared_from_this()](const error_code& error) {
                                if (error) return self->close();
                                self->read_request();
                              });
  }

  void read_request() {
    is_idle_ = false;
    since_ = Clock::now();
    arm(shared_.options.header_deadline, HttpDrop::header_deadline);
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(shared_.options.header_limit));
    http::async_read_header(wire_, buffer_, *parser_,
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              self->on_header(error);
                            });
  }

  void on_header(const error_code& error) {
    disarm();
    is_answering_ = true;
    since_ = Clock::now();
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
      if (wire_.was_plain_http()) say_it_is_tls();
      return close();
    }

    const auto& request = parser_->get();
    if (request.count(http::field::transfer_encoding) > 0) return refuse(400);
    const auto length = request.find(http::field::content_length);
    if (length != request.end() && length->value() != "0") return refuse(413);
    if (request.count(http::field::content_length) > 1) return refuse(400);

    is_head_ = request.method() == http::verb::head;
    if (shared_.options.web) shared_.options.web->look();
    admit({.hosts = shared_.options.hosts,
           .token = shared_.token,
           .web = shared_.options.web.get(),
           .peer = shared_.options.web ? peer() : "",
           .is_first = true});
  }

  void admit(AdmissionRules rules) {
    const auto& request = parser_->get();
    std::optional<Admission> admission = admission_of(request, path_of(request), rules);
    is_waiting_ = !admission;
    if (!admission) {
      if (rules.is_first) arm(kPasswordPatience, HttpDrop::header_deadline);
      rules.is_first = false;
      pause_.expires_after(kAskAgain);
      return pause_.async_wait([self = shared_from_this(), rules](const error_code& error) {
        if (!error && self->wire_.socket().is_open()) self->admit(rules);
      });
    }
    if (*admission) {
      is_refused_ = true;
      return respond(**std::move(admission), {});
    }
    keep_alive_ = request.keep_alive() && !shared_.is_stopping;
    if (!is_head_ && request.method() != http::verb::get) {
      return respond({.status = 405, .body = "only GET and HEAD are allowed here\n"}, {});
    }
    respond(answer_of(request, shared_.routes, shared_.options.otherwise),
            text_of(request[http::field::accept_encoding]));
  }

  [[nodiscard]] std::string peer() const {
    error_code error;
    const auto endpoint = wire_.socket().remote_endpoint(error);
    return error ? "" : endpoint.address().to_string();
  }

  void say_it_is_tls() {
    constexpr std::string_view kSaid =
        "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n"
        "This endpoint speaks TLS: ask by https://\n";
    error_code ignored;
    wire_.socket().write_some(asio::buffer(kSaid), ignored);
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
    bool is_packed = pack(response, accepts_gzip(accept_encoding), shared_.options.gzip_from_bytes);
    if (!has_room_for(response)) {
      response = {.status = 503, .body = "too many large answers are on their way; ask again\n"};
      is_packed = false;
    }
    if (response.stream) keep_alive_ = false;
    head_ = head_of(response, {.length = response.body.size(),
                               .is_packed = is_packed,
                               .keep_alive = keep_alive_,
                               .web = shared_.options.web.get()});
    body_ = is_head_ ? std::string() : std::move(response.body);
    hold(body_.size());
    delivered_ = is_head_ ? nullptr : std::move(response.delivered);
    if (!is_head_ && response.stream) begin_stream(std::move(response.stream));
    if (shared_.options.answered) shared_.options.answered(response.status);
    send();
  }

  /// Clients that read slowly must not make many large answers pile up here. One may be of any size.
  [[nodiscard]] bool has_room_for(const HttpResponse& response) const {
    if (is_head_ || response.body.size() <= kSmallAnswer || shared_.unsent == 0) return true;
    return shared_.unsent + response.body.size() <= room(response.goes_first);
  }

  /// A part is kept for what must get through.
  [[nodiscard]] std::size_t room(bool with_reserve) const {
    const std::size_t most = shared_.options.max_unsent_bytes;
    return with_reserve ? most : most - most / 4;
  }

  void send() {
    arm(shared_.options.write_deadline, HttpDrop::write_deadline);
    const std::array<asio::const_buffer, 2> parts{asio::buffer(head_), asio::buffer(body_)};
    asio::async_write(wire_, parts,
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (error) return self->close();
                        self->on_sent();
                      });
  }

  void on_sent() {
    disarm();
    body_ = {};  // a large one must not stay while the connection idles
    hold(0);
    if (stream_) return send_part();
    if (delivered_) std::exchange(delivered_, nullptr)();
    if (keep_alive_) return wait_for_next();
    if (!is_refused_) return close();
    wire_.say_end();
    error_code ignored;
    wire_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    is_answering_ = false;
    arm(kDrainTime, std::nullopt);
    drain(0);
  }

  void begin_stream(std::function<std::optional<std::string>()> stream) {
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
    wire_.async_read_some(asio::buffer(drained_),
                          [self = shared_from_this()](const error_code& error, std::size_t) {
                            if (error) return self->close();
                            if (self->stream_) self->watch_for_end();
                          });
  }

  void send_part() {
    is_sending_ = false;
    since_ = Clock::now();
    body_ = {};
    try {
      if (shared_.unsent < room(false)) {
        auto part = stream_();
        if (!part) return close();
        body_ = std::move(*part);
      }
    } catch (...) {  // no memory for this part; the next one may be smaller
    }
    hold(body_.size());
    if (body_.empty()) return shared_.is_stopping ? close() : pause();
    is_sending_ = true;
    arm(shared_.options.write_deadline, HttpDrop::write_deadline);
    asio::async_write(wire_, asio::buffer(body_),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (error || !self->stream_) return self->close();
                        self->disarm();
                        self->is_sending_ = false;
                        self->since_ = Clock::now();
                        self->body_ = {};
                        self->hold(0);
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
    wire_.async_read_some(asio::buffer(drained_), [self = shared_from_this(), so_far](
                                                      const error_code& error, std::size_t more) {
      if (error || so_far + more > kDrainBytes) return self->close();
      self->drain(so_far + more);
    });
  }

  HttpShared& shared_;
  std::function<void()> closed_;
  HttpWire wire_;
  asio::steady_timer deadline_;
  std::uint64_t turn_ = 0;
  beast::flat_buffer buffer_{16 * 1024};  // headers, and what a client pipelines behind them
  std::optional<http::request_parser<http::empty_body>> parser_;
  bool is_idle_ = false;
  bool is_answering_ = false;
  bool is_waiting_ = false;                 ///< for its password to be checked
  Clock::time_point since_ = Clock::now();  ///< when it last went on
  std::size_t held_ = 0;                    ///< bytes of body_ that shared_ knows of
  bool keep_alive_ = false;
  bool is_head_ = false;
  bool is_refused_ = false;
  std::string head_;
  std::string body_;
  std::function<void()> delivered_;
  std::function<std::optional<std::string>()> stream_;
  asio::steady_timer pause_;
  bool is_sending_ = false;  ///< a part of the stream
  std::array<char, 1024> drained_{};
};

}  // namespace

std::shared_ptr<HttpConnection> make_http_connection(HttpShared& shared, HttpWire wire,
                                                     std::function<void()> closed) {
  return std::make_shared<Connection>(shared, std::move(wire), std::move(closed));
}

}  // namespace gradvane::exporters
