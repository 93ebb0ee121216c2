#pragma once
// Gradvane about itself: records it lost, time it takes.
//
// Lost: records were overwritten before they could be judged and exported; clears after kKeptSteps steps
// without a loss.
// Cost: in a stretch of kStretch timed steps, our hooks took more than `cost_budget` of the steps' time, and
// more than kFloorSeconds a step: where a step takes as long as a call or two of ours, their share says
// nothing. The first stretch, which sets everything up, is not judged; it clears in one below four fifths
// of the budget.
#include <array>
#include <cstdint>

#include "detectors/incident_slot.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

struct AgentSettings {
  double cost_budget = 0.05;
};

class AgentRules {
  /// All that may hold an incident. First, so that its type is known below.
  template <typename Rules>
  static auto slots(Rules& rules) {
    return std::array{&rules.dropped_, &rules.cost_};
  }

 public:
  static constexpr int kKeptSteps = 100;
  static constexpr int kStretch = 100;
  static constexpr double kFloorSeconds = 500e-6;
  static constexpr double kWell = 0.8;  ///< of the budget

  /// `book` outlives it.
  AgentRules(std::int32_t rank, const AgentSettings& settings, double cooldown_seconds,
             IncidentBook& book, Report report);

  /// From the next step on.
  void change(const AgentSettings& settings, const Moment& now) {
    settings_ = settings;
    for (IncidentSlot* slot : slots(*this)) slot->drop_if_not_judged(now, report_);
  }
  /// Judges one step. Throws only what `report` throws.
  void observe(const record::StepRecord& step);
  /// Incidents that are open, as they stand.
  void tell_open(const Report& tell) const {
    for (const IncidentSlot* slot : slots(*this)) slot->tell_open(tell);
  }

 private:
  void judge_dropped(const record::StepRecord& step);
  void judge_cost(const record::StepRecord& step);

  AgentSettings settings_;
  IncidentSlot dropped_;
  IncidentSlot cost_;
  Report report_;
  struct Cost {
    double agent_seconds = 0;
    double step_seconds = 0;
    void operator+=(const Cost& other) {
      agent_seconds += other.agent_seconds;
      step_seconds += other.step_seconds;
    }
  };
  // Of the stretch in hand. Its dearest step is left out, and one stretch alone says nothing: where others use the
  // machine, a hook may be without a core for longer than all others take.
  int timed_steps_ = 0;
  Cost stretch_;
  Cost dearest_;
  bool is_first_stretch_ = true;
  bool was_high_ = false;
};

}  // namespace gradvane::detectors
