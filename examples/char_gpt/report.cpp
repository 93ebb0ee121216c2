#include "examples/char_gpt/report.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace char_gpt {
namespace {

std::string number(const char* pattern, double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

/// JSON has no NaN and no infinity: there they are strings.
std::string json_number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return number("%.9g", value);
}

/// Only for texts without characters that JSON escapes: names of sizes and devices, digits.
std::string json_text(const std::string& text) {
  std::string result = "\"";
  result += text;
  result += '"';
  return result;
}

std::string json_bool(bool value) { return value ? "true" : "false"; }

void check(std::ofstream& file) {
  file.flush();
  if (!file) throw std::runtime_error("writing the results of the run failed: is the disk full?");
}

}  // namespace

std::ofstream open_output(const char* option, const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path);
  if (!file) throw std::invalid_argument(std::string(option) + " " + path + ": cannot be written");
  return file;
}

void write_summary(std::ofstream& file, const Summary& summary) {
  if (!file.is_open()) return;
  const char* separator = "{\n";
  const auto put = [&](const char* key, const std::string& value) {
    file << separator << "  \"" << key << "\": " << value;
    separator = ",\n";
  };
  put("size", json_text(summary.size));
  put("device", json_text(summary.device));
  put("weights", json_text(summary.weights));
  put("threads", std::to_string(summary.threads));
  put("parameters", std::to_string(summary.parameters));
  put("vocabulary", std::to_string(summary.vocabulary));
  put("ln_vocabulary", json_number(std::log(static_cast<double>(summary.vocabulary))));
  put("tokens_per_step", std::to_string(summary.tokens_per_step));
  put("agent", json_bool(summary.agent));
  put("interrupted", json_bool(summary.interrupted));
  put("steps", std::to_string(summary.steps));
  put("seconds", json_number(summary.seconds));
  put("steps_per_second",
      json_number(summary.seconds > 0 ? static_cast<double>(summary.steps) / summary.seconds : 0));
  if (summary.first_loss) put("first_loss", json_number(*summary.first_loss));
  if (summary.last_loss) put("last_loss", json_number(*summary.last_loss));
  if (summary.held_out_before) put("held_out_loss_before", json_number(*summary.held_out_before));
  if (summary.held_out_after) put("held_out_loss", json_number(*summary.held_out_after));
  if (summary.nonfinite_steps) put("nonfinite_steps", std::to_string(*summary.nonfinite_steps));
  if (summary.skipped_steps) put("skipped_steps", std::to_string(*summary.skipped_steps));
  if (summary.rollbacks) put("rollbacks", std::to_string(*summary.rollbacks));
  put("weights_checksum", json_text(summary.checksum));
  file << "\n}\n";
  check(file);
}

void write_losses(std::ofstream& file, const std::vector<float>& losses) {
  if (!file.is_open()) return;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double loss = losses[i];
    file << i + 1 << ' ' << (std::isnan(loss) ? "nan" : number("%.9g", loss)) << '\n';
  }
  check(file);
}

void write_step_times(std::ofstream& file, const std::vector<double>& seconds) {
  if (!file.is_open()) return;
  for (const double value : seconds) file << number("%.9f", value) << '\n';
  check(file);
}

}  // namespace char_gpt
