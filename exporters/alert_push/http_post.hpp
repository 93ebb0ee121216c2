#pragma once
// POST over HTTP, with TLS or without, in bounded time and memory, whatever the other side does.
#include <chrono>
#include <memory>
#include <string>

#include "exporters/alert_push/alert_url.hpp"
#include "exporters/alert_push/push_access.hpp"
#include "exporters/client/client_connection.hpp"
#include "exporters/client/http_connector.hpp"
#include "exporters/client/resolve_host.hpp"

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

  /// @param access  null: a plain request. Precondition: there is one if the URL has TLS.
  HttpPost(const AlertUrl& url, ResolveHost resolve, std::shared_ptr<PushAccess> access = nullptr)
      : url_(url), access_(std::move(access)), connector_(url, std::move(resolve)) {}

  /// Sends `body` as JSON and waits for the answer until `deadline`, all steps together; only
  /// finding the host's addresses, and reading the files of `access`, may take longer. Throws std::bad_alloc only, or what the resolver
  /// throws.
  [[nodiscard]] HttpAnswer send(const std::string& body, Clock::time_point deadline);

  /// From now on nothing lasts longer than until `deadline`, and known addresses are good enough.
  void hurry(Clock::time_point deadline) noexcept { connector_.hurry(deadline); }

 private:
  using Error = ClientConnection::Error;

  [[nodiscard]] HttpAnswer exchange(ClientConnection& connection, const std::string& authorization,
                                    const std::string& body);

  AlertUrl url_;
  std::shared_ptr<PushAccess> access_;
  HttpConnector connector_;
};

}  // namespace gradvane::exporters
