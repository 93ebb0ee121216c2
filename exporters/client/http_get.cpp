#include "exporters/client/http_get.hpp"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <utility>

namespace gradvane::exporters {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::size_t kReadBytes = 16 * 1024;  // at once
constexpr std::uint32_t kHeaderBytes = 16 * 1024;

}  // namespace

HttpFetched http_get(HttpConnector& connector, const std::string& authority,
                     const std::string& target, const std::string& token, std::uint64_t limit,
                     std::chrono::steady_clock::time_point deadline) {
  HttpConnector::Connected connected = connector.connect(nullptr, deadline);
  if (!connected.connection) return {.error = std::move(connected.error)};
  ClientConnection& connection = *connected.connection;
  std::string request = "GET " + target + " HTTP/1.1\r\nHost: " + authority +
                        "\r\nUser-Agent: gradvane\r\nConnection: close\r\n";
  if (!token.empty()) request += "Authorization: Bearer " + token + "\r\n";
  if (const auto error = connection.write(request + "\r\n"))
    return {.error = "cannot send to " + authority + ": " + connection.words_of(error)};

  http::response_parser<http::string_body> parser;
  parser.header_limit(kHeaderBytes);
  parser.body_limit(limit);
  parser.eager(true);
  boost::beast::flat_buffer buffer(kHeaderBytes + kReadBytes);
  boost::system::error_code error;
  while (!error && !parser.is_done()) {
    std::array<char, kReadBytes> piece;
    std::size_t count = 0;
    error = connection.read(piece, count);
    if (error == asio::error::eof && parser.got_some()) parser.put_eof(error);
    if (error || parser.is_done()) break;
    if (buffer.size() + count > buffer.max_size())  // of what the parser cannot make sense of yet
      return {.error = authority + " answered with a line that has no end"};
    buffer.commit(asio::buffer_copy(buffer.prepare(count), asio::buffer(piece, count)));
    while (!error && buffer.size() > 0 && !parser.is_done())
      buffer.consume(parser.put(buffer.data(), error));
    if (error == http::error::need_more) error = {};
  }
  if (!parser.is_done())
    return {.error = "no answer from " + authority + ": " + connection.words_of(error)};
  auto& answer = parser.get();
  return {.status = static_cast<int>(answer.result_int()), .body = std::move(answer.body())};
}

}  // namespace gradvane::exporters
