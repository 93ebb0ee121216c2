#pragma once
// The alerts on what a run reports itself: an incident of some class, or that it failed. The agent pushes them to
// an Alertmanager; the rules for Prometheus in dashboards/alerts are made from the same rows, so an alert that
// comes both ways has one set of labels and Alertmanager takes it for one.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "record/names.hpp"

namespace gradvane::record {

enum class Severity : std::uint8_t { critical, warning, info };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<Severity> =
    std::to_array<std::string_view>({"critical", "warning", "info"});

struct AlertRule {
  std::string_view name;  ///< the label `alertname`
  Severity severity = Severity::warning;
  std::string_view group;        ///< its group in the file of rules for Prometheus
  std::string_view summary;      ///< what it is, the same for every run
  std::string_view description;  ///< for Prometheus: the first sentence after run and rank
  bool keeps_firing = true;      ///< it stays for a while after its reason is gone
};

inline constexpr std::array kAlertRules{
    AlertRule{.name = "TrainingNonFinite",
              .severity = Severity::critical,
              .group = "nonfinite",
              .summary = "NaN or infinity in gradients or weights",
              .description = "gradients or weights are not finite."},
    AlertRule{.name = "TrainingLossNonFinite",
              .severity = Severity::critical,
              .group = "nonfinite",
              .summary = "The loss is NaN or infinite",
              .description = "the loss is not finite."},
    AlertRule{.name = "TrainingStalled",
              .severity = Severity::critical,
              .group = "run",
              .summary = "No optimizer step for long",
              .description = "the process is alive and makes no steps.",
              .keeps_firing = false},
    AlertRule{
        .name = "TrainingRunFailed",
        .severity = Severity::critical,
        .group = "run",
        .summary = "A training run has failed",
        .description =
            "the process said that the run failed, by an exception or SIGTERM, before it ended.",
        .keeps_firing = false},
    AlertRule{.name = "LossDiverging",
              .severity = Severity::warning,
              .group = "loss",
              .summary = "The loss is diverging",
              .description = "several losses in a row lie far above those before."},
    AlertRule{.name = "LossBackToRandomGuessing",
              .severity = Severity::warning,
              .group = "loss",
              .summary = "The model had learned and is back to guessing",
              .description = "the loss is back at the level of random guessing."},
    AlertRule{.name = "LossSpike",
              .severity = Severity::info,
              .group = "loss",
              .summary = "One loss far above those before",
              .description = "one loss lies far above those before."},
    AlertRule{.name = "GradientNormExploding",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "The gradient norm is far above its own history",
              .description = "the gradient norm has left its history by a large factor."},
    AlertRule{.name = "GradientsVanishing",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "Most parameters have next to no gradient",
              .description = "most parameters have gradients below the vanishing threshold."},
    AlertRule{.name = "GradientNormDrift",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "The gradient norm is moving away from its running mean",
              .description = "the gradient norm keeps moving away from its running mean."},
    AlertRule{.name = "GradientHealthLow",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "The gradient health score is low",
              .description = "the health score of the gradients is low."},
    AlertRule{.name = "DeadParameterGroup",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "A parameter group gets no gradient any more",
              .description = "every gradient of a parameter group has been zero, step after step."},
    AlertRule{
        .name = "AmpOverflowStreak",
        .severity = Severity::warning,
        .group = "steps",
        .summary = "The gradient scaler skips step after step",
        .description = "the gradient scaler has skipped many steps in a row because of overflow."},
    AlertRule{.name = "TrainingStepsSkipped",
              .severity = Severity::warning,
              .group = "steps",
              .summary = "Many steps change nothing",
              .description = "a large share of the steps leaves the weights as they were."},
    AlertRule{.name = "HostSyncBudgetExceeded",
              .severity = Severity::warning,
              .group = "steps",
              .summary = "Steps wait for the GPU more often than they may",
              .description = "steps have more host syncs than their budget."},
    AlertRule{.name = "AgentDroppingData",
              .severity = Severity::warning,
              .group = "agent",
              .summary = "Gradvane loses records of steps or cannot export them",
              .description = "records were lost or could not be exported."},
    AlertRule{
        .name = "AgentOverCostBudget",
        .severity = Severity::warning,
        .group = "agent",
        .summary = "Gradvane costs more of the training time than it may",
        .description = "Gradvane's hooks take more of the training's time than their budget."},
};

/// Null if there is no rule of that name.
constexpr const AlertRule* alert_rule(std::string_view name) {
  const auto* found = std::ranges::find(kAlertRules, name, &AlertRule::name);
  return found == kAlertRules.end() ? nullptr : found;
}

inline constexpr const AlertRule* kRunFailedRule = alert_rule("TrainingRunFailed");

/// The file of its runbook: training-non-finite.md for TrainingNonFinite.
[[nodiscard]] inline std::string runbook_of(const AlertRule& rule) {
  std::string file;
  for (const char letter : rule.name) {
    const bool is_upper = letter >= 'A' && letter <= 'Z';
    if (is_upper && !file.empty()) file += '-';
    file += is_upper ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return file + ".md";
}

}  // namespace gradvane::record
