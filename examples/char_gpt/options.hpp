#pragma once
// The command line of char_gpt. The agent's own options (--gradvane-KEY=VALUE) are taken out before.
#include <cstdint>
#include <gradvane/options.hpp>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "examples/char_gpt/fault.hpp"
#include "examples/char_gpt/training/size_preset.hpp"

namespace char_gpt {

/// Which code clips the gradients: the agent, with the norm it reads anyway, or torch.
enum class Clipper : std::uint8_t { agent, torch };

/// Of weights and gradients.
enum class Weights : std::uint8_t { fp32, bf16 };

struct Options {
  SizePreset shape = kSizePresets[0];  ///< with context, batch, rate and so on as asked for
  std::string data;
  std::string device = "auto";  ///< cpu, cuda or auto
  std::int64_t threads = 0;     ///< 0: as many as torch takes
  Weights weights = Weights::fp32;
  std::int64_t accumulate = 1;
  double max_norm = 1.0;  ///< 0: no clipping
  Clipper clipper = Clipper::agent;
  std::uint64_t seed = 1;
  bool agent = true;
  gradvane::NonfinitePolicy on_nonfinite = gradvane::NonfinitePolicy::watch;
  std::int64_t snapshot_every = 0;  ///< steps; 0: as the agent has it
  std::vector<Fault> faults;
  std::int64_t log_every = 50;
  bool evaluate = true;         ///< held-out loss before and after the run
  std::int64_t eval_every = 0;  ///< and every so many steps; 0: not within the run
  std::string json;             ///< files; empty: none
  std::string loss_log;
  std::string step_times;
};

/// What the command line came to: options, or nothing to run and the exit code.
struct CommandLine {
  std::optional<Options> options;
  int exit_code = 0;
};

/// Help goes to `out`, what is wrong with an option to `err`.
[[nodiscard]] CommandLine parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                             std::ostream& err);

}  // namespace char_gpt
