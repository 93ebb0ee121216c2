#pragma once
// The http config file: how a client of HTTP reaches a server, in the format that Prometheus and amtool have for it
// (prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config).
#include <filesystem>
#include <string>

#include "exporters/web/tls.hpp"

namespace gradvane::exporters {

struct HttpConfig {
  TlsClientSettings tls;      ///< an empty `ca` is the system's, and an empty `name` the host's
  std::string authorization;  ///< the header's value; empty: none
};

/// Names of files are relative to the folder of `file`. Keys that change nothing for single requests are taken, and do
/// nothing: `enable_http2`, `follow_redirects`. Throws std::runtime_error with the file, the key, and what is allowed, for
/// what cannot be read, for keys that the format does not know, and for what is not done here: proxies, OAuth 2, headers
/// of one's own, TLS below 1.2. Never with a password in it.
[[nodiscard]] HttpConfig read_http_config(const std::filesystem::path& file);

}  // namespace gradvane::exporters
