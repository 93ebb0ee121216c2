#include "exporters/alert_push/http_post.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cstdint>
#include <limits>
#include <new>
#include <sstream>
#include <string_view>
#include <utility>

namespace gradvane::exporters {
namespace {

namespace asio = boost::asio;
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

}  // namespace

HttpAnswer HttpPost::send(const std::string& body, Clock::time_point deadline) {
  PushAccess::Way way;
  try {
    if (access_) way = access_->way(url_);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return {.error = error.what()};
  }
  const auto connected = connector_.connect(std::move(way.tls), deadline);
  if (!connected.connection) return {.error = connected.error};
  return exchange(*connected.connection, way.authorization, body);
}

HttpAnswer HttpPost::exchange(ClientConnection& connection, const std::string& authorization,
                              const std::string& body) {
  http::request<http::string_body> request(http::verb::post, url_.target, 11, body);
  request.set(http::field::host, url_.authority);
  request.set(http::field::user_agent, "gradvane");
  request.set(http::field::content_type, "application/json");
  if (!authorization.empty()) request.set(http::field::authorization, authorization);
  request.keep_alive(false);
  request.prepare_payload();
  std::ostringstream text;
  text << request;
  if (const Error error = connection.write(text.str()))
    return {.error = "cannot send to " + url_.authority + ": " + connection.words_of(error)};

  http::response_parser<http::buffer_body> parser;
  parser.header_limit(kHeaderBytes);
  // As much of it is read as there is room for.
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  parser.eager(true);
  std::array<char, kErrorBytes> said{};
  auto& into = parser.get().body();
  into.data = said.data();
  into.size = said.size();
  into.more = true;
  const auto answered = [&] {
    const bool has_status = parser.is_header_done();
    return HttpAnswer{.status = has_status ? static_cast<int>(parser.get().result_int()) : 0,
                      .error = {}};
  };
  std::string pending;
  Error error;
  while (!error && into.size > 0 && !parser.is_done() && !answered().is_taken()) {
    std::array<char, kHeaderBytes> piece;
    std::size_t count = 0;
    error = connection.read(piece, count);
    if (error) break;
    pending.append(piece.data(), count);
    pending.erase(0, parser.put(asio::buffer(pending), error));
    if (error == http::error::need_more) error = {};
  }
  if (!parser.is_header_done())
    return {.error = "no answer from " + url_.authority + ": " + connection.words_of(error)};

  HttpAnswer answer = answered();
  if (answer.is_taken()) return answer;
  const std::string line = one_line({said.data(), said.size() - into.size});
  answer.error = url_.authority + " answered " + std::to_string(answer.status) +
                 (line.empty() ? std::string() : ": " + line);
  return answer;
}

}  // namespace gradvane::exporters
