#pragma once
// What cmake/embed_runbooks.cmake makes of docs/runbooks. Private to runbooks.cpp.
#include <span>
#include <string_view>

namespace gradvane::exporters {

struct RunbookData {
  std::string_view name;    ///< of the file, without `.md`
  std::string_view packed;  ///< gzip's bytes
  std::string_view hash;    ///< SHA-256 of what is in them, in hex
};

/// Sorted by name.
[[nodiscard]] std::span<const RunbookData> runbook_data() noexcept;

}  // namespace gradvane::exporters
