#pragma once
// The web config file: TLS, users and a limit for the endpoint, in the format of Prometheus' exporter-toolkit
// (github.com/prometheus/exporter-toolkit, docs/web-configuration.md).
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "exporters/web/config_files.hpp"
#include "exporters/web/tls.hpp"

namespace gradvane::exporters {

struct RequestLimit {
  std::chrono::nanoseconds interval{};  ///< between two requests, in the long run; more than 0
  int burst = 0;                        ///< so many may come at once; at least 1
};

struct WebConfig {
  std::optional<TlsSettings> tls;
  std::map<std::string, std::string> users;  ///< bcrypt hashes of their passwords
  std::optional<RequestLimit> limit;
  WebAccess::Headers headers;
  StampedFiles files;  ///< that all this was read from
};

/// Names of files are relative to the folder of `file`. `http2` is taken, and does nothing: the endpoint speaks HTTP/1.1.
/// Throws std::runtime_error with the file, the key, and what is allowed, for what cannot be read, for keys that the
/// format does not know, and for what this endpoint does not do: TLS below 1.2, bcrypt of a cost above 12.
[[nodiscard]] WebConfig read_web_config(const std::filesystem::path& file);

/// As Go writes it: 500ms, 1m30s, 0. Absent for anything else, and for less than 0.
[[nodiscard]] std::optional<std::chrono::nanoseconds> go_duration(std::string_view text);

}  // namespace gradvane::exporters
