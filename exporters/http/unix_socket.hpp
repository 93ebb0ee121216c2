#pragma once
// Unix sockets that are named by an open directory and a name in it, so that a path of any length will do.
#include <string>

namespace gradvane::exporters {

/// Whether sockets can be reached by an open directory: it needs /proc.
[[nodiscard]] bool has_unix_sockets() noexcept;

/// A bound, listening, non-blocking descriptor, close-on-exec; -1 with errno set. Only this user may connect (mode
/// 0600). What had the name before is removed, so the caller must own the name.
[[nodiscard]] int listen_on_unix(int directory, const std::string& name, int backlog) noexcept;

/// A connected, non-blocking descriptor, close-on-exec; -1 with errno set. Never waits.
[[nodiscard]] int connect_to_unix(int directory, const std::string& name) noexcept;

}  // namespace gradvane::exporters
