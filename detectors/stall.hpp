#pragma once
// A run that has come to a halt: no step has ended for a long time.
//
// Judged only between the first step and the end of the run: setting up, and what comes after the last
// step, may take as long as they like. The next step ends it. Evaluations and checkpoints do not count.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "detectors/incident_slot.hpp"
#include "detectors/window.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

/// How long a run may go without a step: the least, or, from the eighth step on, 20 times the median of the last 64 if
/// that is longer. A run whose steps take minutes is not stalled in each of them.
class StallLimit {
 public:
  /// @param least_seconds  0: for ever
  explicit StallLimit(double least_seconds) : least_seconds_(least_seconds) {}

  void set_least(double seconds) noexcept { least_seconds_ = seconds; }
  void add(std::optional<double> step_seconds) noexcept {
    if (step_seconds && std::isfinite(*step_seconds)) steps_.add(*step_seconds);
  }
  [[nodiscard]] bool is_over(double seconds) const {
    // The first steps may compile for an hour, and show nothing.
    const double known = steps_.size() < kEnough ? 0 : kMedians * steps_.median();
    return least_seconds_ > 0 && seconds > std::max(least_seconds_, known);
  }

 private:
  static constexpr double kMedians = 20;
  static constexpr std::size_t kEnough = 8;

  double least_seconds_;
  Window steps_{64};
};

class StallDetector {
 public:
  /// @param after_seconds  the least; 0: never
  /// `book` outlives it.
  StallDetector(std::int32_t rank, double after_seconds, IncidentBook& book, Report report);

  /// Where it is never a stall any more, one that is open ends.
  void change(double after_seconds, const Moment& now) {
    limit_.set_least(after_seconds);
    if (after_seconds <= 0 || !slot_.is_judged()) slot_.drop(now, report_);
  }
  /// A step ended at `now`, as the caller's clock has it, and took so long.
  void step(const Moment& now, std::optional<double> step_seconds = std::nullopt);
  /// No step has ended since the latest one; `paused_seconds` of that time were evaluations or checkpoints.
  /// Both throw only what `report` throws.
  void tick(const Moment& now, double paused_seconds = 0);
  /// Incidents that are open, as they stand.
  void tell_open(const Report& tell) const { slot_.tell_open(tell); }

 private:
  StallLimit limit_;
  IncidentSlot slot_;
  Report report_;
  std::optional<Moment> last_step_;
};

}  // namespace gradvane::detectors
