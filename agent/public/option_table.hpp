#pragma once
// Every option: its key, what is allowed, and how text becomes its value. One table, from which the
// YAML file, the environment, the command line and docs/configuration.md all work.
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "agent/include/gradvane/agent.hpp"

namespace gradvane::agent {

struct OptionSpec {
  std::string_view key;      ///< as in YAML and Options: "weight_every"
  std::string_view allowed;  ///< for error messages and the documentation
  std::string_view help;
  /// Returns false, with `options` unchanged, where `text` is not allowed.
  bool (*set)(Options& options, std::string_view text);
  std::string (*get)(const Options& options);
};

/// In the order of the documentation.
[[nodiscard]] std::span<const OptionSpec> option_table() noexcept;
/// Null where there is none.
[[nodiscard]] const OptionSpec* find_option(std::string_view key) noexcept;

/// "weight_every" -> "GRADVANE_WEIGHT_EVERY"; the switch "enabled" is plain "GRADVANE".
[[nodiscard]] std::string environment_name(std::string_view key);
/// "weight_every" -> "--gradvane-weight-every"
[[nodiscard]] std::string argument_name(std::string_view key);

}  // namespace gradvane::agent
