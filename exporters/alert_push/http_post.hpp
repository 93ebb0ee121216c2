#pragma once
// POST over plain HTTP in bounded time and memory, whatever the other side does.
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "exporters/alert_push/alert_url.hpp"
#include "exporters/alert_push/resolve_host.hpp"

namespace gradvane::exporters {

struct HttpAnswer {
  int status = 0;     ///< 0: there was none
  std::string error;  ///< what went wrong, in a line for a person; empty for a status of 2xx

  [[nodiscard]] bool is_taken() const { return status >= 200 && status < 300; }
  /// The same request would be refused again.
  [[nodiscard]] bool is_refused() const {
    return status >= 300 && status < 500 && status != 408 && status != 429;
  }
};

/// Threading: send() from one thread; hurry() from any.
class HttpPost {
 public:
  using Clock = std::chrono::steady_clock;

  HttpPost(AlertUrl url, ResolveHost resolve)
      : url_(std::move(url)), resolve_(std::move(resolve)) {}
  HttpPost(const HttpPost&) = delete;  // its operations point to it
  HttpPost& operator=(const HttpPost&) = delete;

  /// Sends `body` as JSON and waits for the answer until `deadline`, all steps together; only
  /// finding the host's addresses may take longer. Throws std::bad_alloc only, or what the resolver
  /// throws.
  [[nodiscard]] HttpAnswer send(const std::string& body, Clock::time_point deadline);

  /// From now on nothing lasts longer than until `deadline`, and known addresses are good enough.
  void hurry(Clock::time_point deadline) noexcept;

 private:
  using Tcp = boost::asio::ip::tcp;
  using Error = boost::system::error_code;

  void find_addresses();
  [[nodiscard]] Error connect(Tcp::socket& socket);
  [[nodiscard]] HttpAnswer exchange(Tcp::socket& socket, const std::string& body);
  [[nodiscard]] Error wait(Tcp::socket& socket, const std::optional<Error>& outcome);
  [[nodiscard]] Clock::time_point limit() const noexcept;

  AlertUrl url_;
  ResolveHost resolve_;
  std::vector<std::string> addresses_;
  bool is_stale_ = true;
  Clock::time_point deadline_{};
  std::atomic<Clock::time_point> hurry_{Clock::time_point::max()};
  boost::asio::io_context context_{1};
};

}  // namespace gradvane::exporters
