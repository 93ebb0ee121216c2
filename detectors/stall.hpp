#pragma once
// A run that has come to a halt: no step has ended for `after_seconds`.
//
// Judged only between the first step and the end of the run: setting up, and what comes after the last
// step, may take as long as they like. The next step ends it. Evaluations and checkpoints do not count.
#include <optional>

#include "detectors/incident_slot.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

class StallDetector {
 public:
  /// @param after_seconds  0: never
  /// `book` outlives it.
  StallDetector(std::int32_t rank, double after_seconds, IncidentBook& book, Report report);

  /// A step ended at `now`, as the caller's clock has it.
  void step(const Moment& now);
  /// No step has ended since the latest one; `paused_seconds` of that time were evaluations or checkpoints.
  /// Both throw only what `report` throws.
  void tick(const Moment& now, double paused_seconds = 0);
  /// Incidents that are open, as they stand.
  void tell_open(const Report& tell) const { slot_.tell_open(tell); }

 private:
  double after_seconds_;
  IncidentSlot slot_;
  Report report_;
  std::optional<Moment> last_step_;
};

}  // namespace gradvane::detectors
