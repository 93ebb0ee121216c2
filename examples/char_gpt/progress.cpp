#include "examples/char_gpt/progress.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "examples/char_gpt/terminal.hpp"

namespace char_gpt {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{200};
constexpr std::chrono::seconds kRateInterval{1};

template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, values...);
  return text.data();
}

}  // namespace

std::string format_loss(double loss) {
  return std::isnan(loss) ? "nan" : format("%.4f", loss);  // printf writes a NaN's sign
}

Progress::Progress(std::int64_t steps, std::int64_t every, Terminal& terminal)
    : steps_(steps), every_(every), terminal_(terminal) {}

bool Progress::due(std::int64_t step, bool last) {
  const auto now = Clock::now();
  const bool is_due =
      last || (terminal_.live() ? now - shown_at_ >= kLiveInterval : step % every_ == 0);
  if (!is_due) return false;
  shown_at_ = now;
  // Over a second or more: single steps jitter.
  if (now - rate_from_time_ >= kRateInterval || rate_ == 0) {
    const double seconds = std::chrono::duration<double>(now - rate_from_time_).count();
    rate_ = static_cast<double>(step - rate_from_step_) / seconds;
    rate_from_time_ = now;
    rate_from_step_ = step;
  }
  return true;
}

void Progress::show(const ProgressLine& line) {
  std::string text = "step " + std::to_string(line.step) + "/" + std::to_string(steps_);
  if (line.loss) text += "  loss " + format_loss(*line.loss);
  if (line.norm) text += "  norm " + format_loss(*line.norm);
  text += format("  %.1f steps/s", rate_);
  if (line.nonfinite_steps) {
    text += format("  non-finite %lld", static_cast<long long>(*line.nonfinite_steps));
  }
  if (!line.url.empty()) text += "  " + line.url;
  if (terminal_.live()) {
    terminal_.update(std::move(text));
  } else {
    terminal_.print(text);
  }
}

void Progress::show_held_out(std::int64_t step, double loss) {
  terminal_.print({"step ", std::to_string(step), "  held-out loss ", format_loss(loss)});
}

}  // namespace char_gpt
