#pragma once
// From what code, YAML file, environment and command line say to the options that hold.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "record/run_info.hpp"

namespace gradvane::agent {

/// Looks up an environment variable; absent where it is not set. Injected, so that tests need no setenv.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
[[nodiscard]] Environment process_environment();

struct ResolvedOptions {
  Options options;                        ///< ranks and run name filled in
  std::vector<record::Setting> settings;  ///< every option with where its value came from
};

/// Throws std::invalid_argument for an unknown key or a value that is not allowed, naming the key, the
/// value, where it was set and what is allowed; also for a YAML file that cannot be read. Where the
/// environment or the command line switches the agent off, nothing else is read or refused, and all else
/// is default.
[[nodiscard]] ResolvedOptions resolve(const Options& code, const Environment& environment);

}  // namespace gradvane::agent
