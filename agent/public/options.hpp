#pragma once
// From what code, YAML file, environment and command line say to the options that hold.
#include <functional>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "record/run/launchers.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::agent {

using record::Environment;
using record::process_environment;

struct ResolvedOptions {
  Options options;                        ///< ranks and run_id filled in
  std::vector<record::Setting> settings;  ///< every option with where its value came from
  std::string default_run = {};  ///< what the run is called if no one names it; empty: the program
  std::string config_path = {};  ///< of the YAML file, absolute; empty: there is none
  /// Resolves the same code, environment and command line again, with the YAML file as it is by then. Any thread: it
  /// looks at no environment. Throws as resolve(). Empty: there is no file.
  std::function<ResolvedOptions()> again = {};
};

/// Throws std::invalid_argument for an unknown key or a value that is not allowed, naming the key, the
/// value, where it was set and what is allowed; also for a YAML file that cannot be read. Where the
/// environment or the command line switches the agent off, nothing else is read or refused, and all else
/// is default.
[[nodiscard]] ResolvedOptions resolve(const Options& code, const Environment& environment);

/// Whether a live run has the default name, so that this one has its run_id behind it.
[[nodiscard]] bool is_renamed(const Options& options, const record::RunInfo& run);

}  // namespace gradvane::agent
