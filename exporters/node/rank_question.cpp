#include "exporters/node/rank_question.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "exporters/http/unix_socket.hpp"

namespace gradvane::exporters {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPiece = std::size_t{64} << 10;
constexpr std::uint32_t kLongestHead = 64U << 10;
constexpr std::uint64_t kLargestBody = std::uint64_t{256} << 20;
constexpr std::string_view kStream = "text/event-stream";

std::string request_text(const std::string& target, const HttpRequest& asked) {
  std::string text = "GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
  if (!asked.accept.empty()) text += "Accept: " + asked.accept + "\r\n";
  if (!asked.last_event_id.empty()) text += "Last-Event-ID: " + asked.last_event_id + "\r\n";
  return text + "\r\n";
}

std::string text_of(beast::string_view view) { return {view.data(), view.size()}; }

}  // namespace

struct RankQuestion::State {
  OwnDescriptor socket;
  beast::flat_buffer buffer{2 * kPiece};
  http::response_parser<http::string_body> parser;
  bool is_refused = false;
  bool is_over = false;

  State(int directory, const std::string& name, const std::string& request)
      : socket(connect_to_unix(directory, name)) {
    parser.eager(true);
    parser.header_limit(kLongestHead);
    parser.body_limit(kLargestBody);
    is_refused = !socket.is_open();
    // A fresh socket has room for the whole request.
    const auto sent =
        is_refused ? -1 : ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(request.size())) end();
  }

  void end() noexcept {
    is_over = true;
    socket.close();
  }

  [[nodiscard]] bool is_stream() const {
    if (!parser.is_header_done()) return false;
    const auto type = parser.get()[http::field::content_type];
    return std::string_view(type.data(), type.size()) == kStream;
  }

  /// What there is to read now.
  void read() {
    for (int i = 0; i < 64 && !is_over; ++i) {  // then the other ranks have their turn
      const auto room = buffer.prepare(kPiece);
      const auto size = ::recv(socket.get(), room.data(), room.size(), MSG_DONTWAIT);
      if (size < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        if (errno != EINTR) end();
        continue;
      }
      boost::system::error_code error;
      if (size == 0) {
        if (parser.got_some()) parser.put_eof(error);
        end();
      } else {
        buffer.commit(static_cast<std::size_t>(size));
        parse();
      }
      // The first part of a stream is for take_answer().
      if (parser.is_done() || is_stream()) return;
    }
  }

  void parse() {
    while (buffer.size() > 0 && !parser.is_done()) {
      boost::system::error_code error;
      buffer.consume(parser.put(buffer.data(), error));
      if (error == http::error::need_more) return;
      if (error) return end();
    }
    if (parser.is_done()) end();
  }

  /// What has come of a stream since the last call; absent if it is over.
  std::optional<std::string> next_part() {
    if (!is_over) read();
    std::string part = std::exchange(parser.get().body(), {});
    if (part.empty() && is_over) return std::nullopt;
    return part;
  }
};

RankQuestion::RankQuestion(int directory, const std::string& socket, const std::string& target,
                           const HttpRequest& asked)
    : state_(std::make_shared<State>(directory, socket, request_text(target, asked))) {}

RankQuestion::~RankQuestion() = default;
RankQuestion::RankQuestion(RankQuestion&&) noexcept = default;

bool RankQuestion::is_refused() const noexcept { return state_->is_refused; }

bool RankQuestion::is_over() const noexcept { return state_->is_over || state_->is_stream(); }

std::optional<HttpResponse> RankQuestion::take_answer() {
  const bool is_stream = state_->is_stream();
  if (!is_stream && !state_->parser.is_done()) return std::nullopt;
  auto& message = state_->parser.get();
  HttpResponse answer{.status = static_cast<int>(message.result_int()),
                      .content_type = text_of(message[http::field::content_type]),
                      .etag = text_of(message[http::field::etag]),
                      .vary = text_of(message[http::field::vary]),
                      .cache_control = text_of(message[http::field::cache_control])};
  if (is_stream) {
    answer.stream = [state = state_] { return state->next_part(); };
  } else {
    answer.body = std::move(message.body());
  }
  return answer;
}

void wait_for(std::span<RankQuestion> questions, Clock::time_point until) {
  std::vector<pollfd> polled;
  std::vector<RankQuestion*> asked;
  while (true) {
    polled.clear();
    asked.clear();
    for (RankQuestion& question : questions) {
      if (question.is_over()) continue;
      polled.push_back({.fd = question.state_->socket.get(), .events = POLLIN, .revents = 0});
      asked.push_back(&question);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (polled.empty() || left <= 0) return;
    if (::poll(polled.data(), polled.size(), static_cast<int>(left)) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < polled.size(); ++i)
      if (polled[i].revents != 0) asked[i]->state_->read();
  }
}

}  // namespace gradvane::exporters
