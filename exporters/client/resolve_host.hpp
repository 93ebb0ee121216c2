#pragma once
// From the name of a host to its addresses.
#include <functional>
#include <string>
#include <vector>

namespace gradvane::exporters {

/// The addresses of a host, in the order in which they are to be tried; empty where there are none.
using ResolveHost = std::function<std::vector<std::string>(const std::string& host)>;

/// As the system does it. May block for as long as the system likes.
[[nodiscard]] std::vector<std::string> resolve_host(const std::string& host);

}  // namespace gradvane::exporters
