#pragma once
// How a run shows where it is: a line rewritten in place on a terminal, a line every so often elsewhere.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace char_gpt {

class Terminal;

struct ProgressLine {
  std::int64_t step = 0;
  std::optional<double> loss;
  std::optional<double> norm;  ///< before clipping
  std::optional<std::int64_t> nonfinite_steps;
  std::string url;
};

class Progress {
 public:
  /// `terminal` must outlive this.
  Progress(std::int64_t steps, std::int64_t every, Terminal& terminal);

  /// Whether `step`, just done, is to be shown: some times a second on a terminal, every `every` steps
  /// elsewhere, and always when it is the last one.
  [[nodiscard]] bool due(std::int64_t step, bool last);

  void show(const ProgressLine& line);
  void show_held_out(std::int64_t step, double loss);

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t steps_;
  std::int64_t every_;
  Terminal& terminal_;
  Clock::time_point shown_at_{};
  Clock::time_point rate_from_time_ = Clock::now();
  std::int64_t rate_from_step_ = 0;
  double rate_ = 0;  // steps a second
};

/// Four digits behind the point, or nan, inf, -inf.
[[nodiscard]] std::string format_loss(double loss);

}  // namespace char_gpt
