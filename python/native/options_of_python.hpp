#pragma once
// The options that a script gives, as "key=value".
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"

namespace gradvane::python {

/// Throws std::invalid_argument for an option that does not exist or is not allowed.
Options options_of(const std::vector<std::string>& code, std::vector<std::string> command_line);

/// Whether a run with these options is measured and has no run_id yet. False if an option is not
/// allowed, which the constructor reports.
bool lacks_run_id(const std::vector<std::string>& code, std::vector<std::string> command_line);

}  // namespace gradvane::python
