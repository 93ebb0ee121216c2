#pragma once
#include <memory>

#include "exporters/web/tls.hpp"

namespace gradvane::exporters {

/// Throws std::invalid_argument, with what to change.
[[nodiscard]] std::unique_ptr<TlsServer> open_server(const TlsSettings& settings);

}  // namespace gradvane::exporters
