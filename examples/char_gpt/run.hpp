#pragma once
// One run from text to report.
#include <string>
#include <vector>

#include "examples/char_gpt/options.hpp"

namespace char_gpt {

/// Reads the text, trains, evaluates, writes a sample and the files asked for. Returns the exit code.
/// Throws std::invalid_argument for an option that cannot be had.
/// @param agent_arguments  what gradvane::take_arguments() took from the command line
[[nodiscard]] int run(const Options& options, std::vector<std::string> agent_arguments);

}  // namespace char_gpt
