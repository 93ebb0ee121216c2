#include "exporters/client/http_connector.hpp"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <iterator>
#include <utility>

namespace gradvane::exporters {

namespace asio = boost::asio;

std::vector<std::string> resolve_host(const std::string& host) {
  asio::io_context context;
  asio::ip::tcp::resolver resolver(context);
  boost::system::error_code error;
  std::vector<std::string> addresses;
  for (const auto& found : resolver.resolve(host, "", error))
    addresses.push_back(found.endpoint().address().to_string());
  return addresses;
}

HttpConnector::Clock::time_point HttpConnector::limit() const noexcept {
  return std::min(deadline_, hurry_.load());
}

void HttpConnector::hurry(Clock::time_point deadline) noexcept {
  hurry_.store(deadline);
  try {
    asio::post(context_, [] {});  // so that who waits looks at the limit again
  } catch (...) {                 // no memory: it looks when its own deadline has come
  }
}

void HttpConnector::find_addresses() {
  const bool in_a_hurry = hurry_.load() != Clock::time_point::max();
  if (!addresses_.empty() && (!is_stale_ || in_a_hurry)) return;
  Error not_an_address;
  (void)asio::ip::make_address(place_.host, not_an_address);
  std::vector<std::string> found =
      not_an_address ? resolve_(place_.host) : std::vector<std::string>{place_.host};
  if (!found.empty()) addresses_ = std::move(found);
  is_stale_ = addresses_.empty();
}

HttpConnector::Connected HttpConnector::connect(std::unique_ptr<TlsClientSession> tls,
                                                Clock::time_point deadline) {
  deadline_ = deadline;
  find_addresses();
  if (addresses_.empty()) return {.error = "no address of " + place_.host + " was found"};
  auto connection =
      std::make_unique<ClientConnection>(context_, std::move(tls), [this] { return limit(); });
  if (const Error error = connect_to_any(*connection)) {
    is_stale_ = true;  // it may have moved
    return {.error = "cannot connect to " + place_.authority + ": " + error.message()};
  }
  if (const Error error = connection->shake_hands())
    return {.error = "no TLS with " + place_.authority + ": " + connection->words_of(error)};
  return {.connection = std::move(connection)};
}

/// One that takes all the time is the last one next time.
HttpConnector::Error HttpConnector::connect_to_any(ClientConnection& connection) {
  Error error = asio::error::timed_out;
  for (std::size_t i = 0; i < addresses_.size() && Clock::now() < limit(); ++i) {
    const ClientConnection::Tcp::endpoint endpoint(asio::ip::make_address(addresses_[i], error),
                                                   place_.port);
    if (!error) error = connection.connect(endpoint);
    if (!error) return error;
  }
  if (error == asio::error::timed_out)
    std::ranges::rotate(addresses_, std::next(addresses_.begin()));
  return error;
}

}  // namespace gradvane::exporters
