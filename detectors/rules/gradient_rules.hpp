#pragma once
// What the parameters' gradients say together: vanishing, unhealthy, dead groups.
//
// Vanishing: the share of parameters that have a gradient whose norm is below `vanishing_threshold` (the
// agent's option), `vanishing_share` or more, in kVanishingInARow steps in a row.
// Unhealthy: the score of preset esper_v1, 1 - 0.5 * vanishing share - 0.8 * exploding share, below kSick
// in kSickInARow steps in a row; it clears at kWell. Its thresholds are absolute, so it is not judged
// unless asked for.
// Dead: every element of every gradient of a group is zero, in `dead_after` steps in a row, while another
// group's gradients are not. A group whose gradients are missing is neither dead nor alive.
// Steps with non-finite gradients are left out of all three: the non-finite detector has them.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "detectors/incident_slot.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

struct GradientSettings {
  double vanishing_share = 0.5;
  int dead_after = 50;
};

class GradientRules {
  /// All that may hold an incident. First, so that its type is known below.
  template <typename Rules>
  static auto slots(Rules& rules) {
    return std::array{&rules.vanishing_, &rules.health_, &rules.dead_};
  }

 public:
  static constexpr int kVanishingInARow = 10;
  static constexpr int kSickInARow = 5;
  static constexpr double kSick = 0.5;
  static constexpr double kWell = 0.7;
  static constexpr int kCloseAfter = 10;

  /// `book` outlives it.
  GradientRules(std::int32_t rank, const GradientSettings& settings, double cooldown_seconds,
                IncidentBook& book, Report report);

  /// From the next step on.
  void change(const GradientSettings& settings, const Moment& now) {
    settings_ = settings;
    for (IncidentSlot* slot : slots(*this)) slot->drop_if_not_judged(now, report_);
  }
  /// Judges one step of one optimizer. Throws only what `report` throws, and std::bad_alloc.
  void observe(const record::StepRecord& step, const record::StepDetail& detail,
               const record::ModelInfo& model);
  /// Incidents that are open, as they stand.
  void tell_open(const Report& tell) const {
    for (const IncidentSlot* slot : slots(*this)) slot->tell_open(tell);
  }

 private:
  void judge_vanishing(const record::StepRecord& step);
  void judge_health(const record::StepRecord& step);
  void judge_dead(const record::StepRecord& step, const record::StepDetail& detail,
                  const record::ModelInfo& model);

  GradientSettings settings_;
  IncidentSlot vanishing_;
  IncidentSlot health_;
  IncidentSlot dead_;
  Report report_;
  std::uint64_t model_id_ = 0;
  std::vector<int> zero_in_a_row_;  ///< steps, by group
};

}  // namespace gradvane::detectors
