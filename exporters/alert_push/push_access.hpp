#pragma once
// How to reach an Alertmanager that asks for TLS, or wants to know who sends.
#include <memory>
#include <string>

#include "exporters/alert_push/alert_url.hpp"
#include "exporters/http/tls_session.hpp"

namespace gradvane::exporters {

/// Threading: the constructor aside, the sender's thread alone.
class PushAccess {
 public:
  struct Way {
    std::string authorization = {};                   ///< the header's value; empty: none
    std::unique_ptr<TlsClientSession> tls = nullptr;  ///< of a fresh connection; null: without TLS
  };
  PushAccess() = default;
  virtual ~PushAccess() = default;
  PushAccess(const PushAccess&) = delete;
  PushAccess& operator=(const PushAccess&) = delete;

  /// For one request, from files as they are now: passwords and certificates are renewed while a run lasts. Throws
  /// std::exception, with what to change.
  [[nodiscard]] virtual Way way(const AlertUrl& url) = 0;
};

}  // namespace gradvane::exporters
