#include "exporters/alert_push/http_post.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string_view>

namespace gradvane::exporters {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::size_t kHeaderBytes = 16 * 1024;
constexpr std::size_t kErrorBytes = 512;  // enough for what Alertmanager says; the rest is not read

/// What somebody else said, fit for a line of a log.
std::string one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line)
    if (c < ' ' || c > '~') c = ' ';
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

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

std::vector<std::string> resolve_host(const std::string& host) {
  asio::io_context context;
  asio::ip::tcp::resolver resolver(context);
  boost::system::error_code error;
  std::vector<std::string> addresses;
  for (const auto& found : resolver.resolve(host, "", error))
    addresses.push_back(found.endpoint().address().to_string());
  return addresses;
}

HttpPost::Clock::time_point HttpPost::limit() const noexcept {
  return std::min(deadline_, hurry_.load());
}

void HttpPost::hurry(Clock::time_point deadline) noexcept {
  hurry_.store(deadline);
  try {
    asio::post(context_, [] {});  // so that who waits looks at the limit again
  } catch (...) {                 // no memory: it looks when its own deadline has come
  }
}

void HttpPost::find_addresses() {
  const bool in_a_hurry = hurry_.load() != Clock::time_point::max();
  if (!addresses_.empty() && (!is_stale_ || in_a_hurry)) return;
  Error not_an_address;
  (void)asio::ip::make_address(url_.host, not_an_address);
  std::vector<std::string> found =
      not_an_address ? resolve_(url_.host) : std::vector<std::string>{url_.host};
  if (!found.empty()) addresses_ = std::move(found);
  is_stale_ = addresses_.empty();
}

HttpAnswer HttpPost::send(const std::string& body, Clock::time_point deadline) {
  deadline_ = deadline;
  find_addresses();
  if (addresses_.empty()) return {.error = "no address of " + url_.host + " was found"};
  Tcp::socket socket(context_);
  const Error error = connect(socket);
  if (!error) return exchange(socket, body);
  is_stale_ = true;  // it may have moved
  return {.error = "cannot connect to " + url_.authority + ": " + error.message()};
}

/// To the first of the addresses that answers. One that takes all the time is the last one next
/// time.
HttpPost::Error HttpPost::connect(Tcp::socket& socket) {
  Error error = asio::error::timed_out;
  for (std::size_t i = 0; i < addresses_.size() && Clock::now() < limit(); ++i) {
    const Tcp::endpoint endpoint(asio::ip::make_address(addresses_[i], error), url_.port);
    if (!error) error = open(socket, endpoint.protocol());
    if (error) continue;
    std::optional<Error> outcome;
    socket.async_connect(endpoint, [&](const Error& result) { outcome = result; });
    error = wait(socket, outcome);
    if (!error) return error;
    Error ignored;
    socket.close(ignored);
  }
  if (error == asio::error::timed_out)
    std::ranges::rotate(addresses_, std::next(addresses_.begin()));
  return error;
}

HttpAnswer HttpPost::exchange(Tcp::socket& socket, const std::string& body) {
  http::request<http::string_body> request(http::verb::post, url_.target, 11, body);
  request.set(http::field::host, url_.authority);
  request.set(http::field::user_agent, "gradvane");
  request.set(http::field::content_type, "application/json");
  request.keep_alive(false);
  request.prepare_payload();

  std::optional<Error> outcome;
  const auto note = [&](const Error& result, std::size_t) { outcome = result; };
  http::async_write(socket, request, note);
  if (const Error error = wait(socket, outcome))
    return {.error = "cannot send to " + url_.authority + ": " + error.message()};

  beast::flat_buffer buffer(kHeaderBytes);
  http::response_parser<http::buffer_body> parser;
  // As much of it is read as there is room for.
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  outcome.reset();
  http::async_read_header(socket, buffer, parser, note);
  if (const Error error = wait(socket, outcome))
    return {.error = "no answer from " + url_.authority + ": " + error.message()};

  HttpAnswer answer{.status = static_cast<int>(parser.get().result_int()), .error = {}};
  if (answer.is_taken()) return answer;
  std::array<char, kErrorBytes> text{};
  auto& into = parser.get().body();
  into.data = text.data();
  into.size = text.size();
  into.more = true;
  if (!parser.is_done()) {
    outcome.reset();
    http::async_read(socket, buffer, parser, note);
    (void)wait(socket, outcome);  // what has come until then is enough
  }
  const std::string said = one_line({text.data(), text.size() - into.size});
  answer.error = url_.authority + " answered " + std::to_string(answer.status) +
                 (said.empty() ? std::string() : ": " + said);
  return answer;
}

/// Until the operation that was begun on `socket` is over, or time is up.
HttpPost::Error HttpPost::wait(Tcp::socket& socket, const std::optional<Error>& outcome) {
  context_.restart();
  while (!outcome && Clock::now() < limit()) context_.run_one_until(limit());
  if (!outcome) context_.poll();  // what came in time, to a thread that had no core to look
  if (outcome) return *outcome;
  Error ignored;
  socket.close(ignored);
  while (!outcome) context_.run_one();  // it refers to what is about to go
  return asio::error::timed_out;
}

}  // namespace gradvane::exporters
