#pragma once
// The files a run can write, for scripts: a JSON summary, the loss and the time of every step.
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace char_gpt {

struct Summary {
  std::string size = {};
  std::string device = {};
  std::string weights = {};  ///< their type
  std::int64_t threads = 0;
  std::int64_t parameters = 0;
  std::int64_t vocabulary = 0;  ///< rows of the embedding
  std::int64_t tokens_per_step = 0;
  bool agent = false;
  bool interrupted = false;
  std::int64_t steps = 0;
  double seconds = 0;
  std::optional<double> first_loss = {};
  std::optional<double> last_loss = {};
  std::optional<double> held_out_before = {};  ///< absent with --no-eval
  std::optional<double> held_out_after = {};
  std::optional<std::int64_t> nonfinite_steps = {};  ///< as the agent counted them
  std::optional<std::int64_t> skipped_steps = {};    ///< by --on-nonfinite
  std::optional<std::int64_t> rollbacks = {};        ///< absent: none
  std::string checksum = {};                         ///< of all weights
};

/// An open file for `path`, or a closed one where it is empty. Throws std::invalid_argument, naming the
/// option, where it cannot be written: before a long run, not after it.
[[nodiscard]] std::ofstream open_output(const char* option, const std::string& path);

/// Each does nothing where its file is closed, and throws std::runtime_error where writing fails.
void write_summary(std::ofstream& file, const Summary& summary);
/// "step loss" a line; nine significant digits bring a float back bit for bit.
void write_losses(std::ofstream& file, const std::vector<float>& losses);
void write_step_times(std::ofstream& file, const std::vector<double>& seconds);

}  // namespace char_gpt
