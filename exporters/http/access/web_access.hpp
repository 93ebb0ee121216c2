#pragma once
// What stands between the network and the HTTP server, where a web config asks for it: TLS, users, a limit.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporters/http/tls_session.hpp"

namespace gradvane::exporters {

/// Threading: the constructor aside, the server's thread alone.
class WebAccess {
 public:
  /// Whether a request may be answered.
  enum class Verdict : std::uint8_t {
    yes,
    no,
    not_yet,  ///< its password is still to be checked: ask again, soon
  };
  using Headers = std::vector<std::pair<std::string, std::string>>;
  WebAccess() = default;
  virtual ~WebAccess() = default;
  WebAccess(const WebAccess&) = delete;  // watches files
  WebAccess& operator=(const WebAccess&) = delete;

  /// The same for as long as it lives.
  [[nodiscard]] virtual bool has_tls() const noexcept = 0;
  /// Takes files that have changed. For each connection and each request; it looks once per second at most.
  virtual void look() = 0;
  /// For a fresh connection. Precondition: has_tls().
  [[nodiscard]] virtual std::unique_ptr<TlsSession> session() = 0;
  /// Takes one request from the limit.
  [[nodiscard]] virtual bool is_within_limit() = 0;
  [[nodiscard]] virtual bool has_users() const noexcept = 0;
  /// Precondition: has_users().
  /// @param peer           the address that asks, without its port: each gets its turn
  /// @param authorization  the header's value
  [[nodiscard]] virtual Verdict admits(std::string_view peer, std::string_view authorization) = 0;
  /// To be added to answers, or to stand in place of our own of that name.
  [[nodiscard]] virtual const Headers& headers() const noexcept = 0;
};

}  // namespace gradvane::exporters
