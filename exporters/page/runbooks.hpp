#pragma once
// The runbooks of the alerts, held in the library: whoever is woken by an alert can open one as long as the run lives.
#include <map>
#include <string>

#include "exporters/http/http_message.hpp"

namespace gradvane::exporters {

/// `/runbooks/NAME` and `/runbooks/NAME.md`, as plain text, and `/runbooks/`, which lists them.
[[nodiscard]] std::map<std::string, HttpHandler> runbook_routes();

}  // namespace gradvane::exporters
