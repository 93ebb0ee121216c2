#pragma once
// Options whose text has a grammar of its own.
#include <string_view>

#include "agent/include/gradvane/agent.hpp"

namespace gradvane::agent {

// Each takes what is allowed, and returns false for all else.
[[nodiscard]] bool set_groups(Options& options, std::string_view value);
[[nodiscard]] bool set_address(Options& options, std::string_view value);
[[nodiscard]] bool set_token(Options& options, std::string_view value);
[[nodiscard]] bool set_allowed_hosts(Options& options, std::string_view value);
[[nodiscard]] bool set_alert_url(Options& options, std::string_view value);
[[nodiscard]] bool set_alert_labels(Options& options, std::string_view value);
[[nodiscard]] bool set_detect(Options& options, std::string_view value);

}  // namespace gradvane::agent
