#include "detectors/rules/agent_rules.hpp"

#include <string>
#include <utility>

#include "detectors/number_words.hpp"

namespace gradvane::detectors {

using record::IncidentClass;

AgentRules::AgentRules(std::int32_t rank, const AgentSettings& settings, double cooldown_seconds,
                       IncidentBook& book, Report report)
    : settings_(settings),
      dropped_(IncidentClass::data_dropped, rank, {1, kKeptSteps, cooldown_seconds}, book),
      cost_(IncidentClass::agent_cost, rank, {1, 1, cooldown_seconds}, book),
      report_(std::move(report)) {}

void AgentRules::observe(const record::StepRecord& step) {
  judge_dropped(step);
  judge_cost(step);
}

void AgentRules::judge_dropped(const record::StepRecord& step) {
  dropped_.judge(
      step.dropped_before > 0, step,
      [&](record::Incident& incident) {
        incident.evidence =
            "Before step " + std::to_string(step.run_step) + ": " +
            std::to_string(step.dropped_before) +
            (step.dropped_before == 1 ? " record was" : " records were") +
            " lost, because the worker came too late. Non-finite values in them are counted all "
            "the same; a larger ring_slots holds more.";
      },
      report_);
}

void AgentRules::judge_cost(const record::StepRecord& step) {
  if (!step.step_seconds) return;
  const Cost cost{step.agent_seconds, *step.step_seconds};
  stretch_ += cost;
  if (cost.agent_seconds > dearest_.agent_seconds) dearest_ = cost;
  if (++timed_steps_ < kStretch) return;
  const double agent_seconds = stretch_.agent_seconds - dearest_.agent_seconds;
  const double step_seconds = stretch_.step_seconds - dearest_.step_seconds;
  const double per_step = agent_seconds / (timed_steps_ - 1);
  const double share = step_seconds > 0 ? agent_seconds / step_seconds : 0;
  timed_steps_ = 0;
  stretch_ = dearest_ = {};
  if (std::exchange(is_first_stretch_, false)) return;
  const bool is_high = share > settings_.cost_budget && per_step > kFloorSeconds;
  const bool was_high = std::exchange(was_high_, is_high);
  if (is_high && !was_high && !cost_.is_open()) return;
  if (!is_high && cost_.is_open() && per_step > kFloorSeconds &&
      share > kWell * settings_.cost_budget)
    return;  // neither
  cost_.judge(
      is_high, step,
      [&](record::Incident& incident) {
        incident.evidence = "Up to step " + std::to_string(step.run_step) +
                            ": Gradvane's hooks took " + percent(share) + " of the time of " +
                            std::to_string(kStretch) + " steps, the dearest left out (" +
                            words_of(1e3 * per_step) + " ms a step), more than the " +
                            percent(settings_.cost_budget) + " it may, and of the " +
                            std::to_string(kStretch) + " before.";
      },
      report_);
}

}  // namespace gradvane::detectors
