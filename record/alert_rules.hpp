#pragma once
// The alerts on what a run reports itself: an incident of some class, or how it ended. The agent pushes them to
// an Alertmanager; the rules for Prometheus in dashboards/alerts are made from the same rows, so an alert that
// comes both ways has one set of labels and Alertmanager takes it for one.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "record/names.hpp"
#include "record/run/end_reason.hpp"

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
    AlertRule{.name = "GradvaneTrainingNonFinite",
              .severity = Severity::critical,
              .group = "nonfinite",
              .summary = "NaN or infinity in gradients or weights",
              .description = "gradients or weights are not finite."},
    AlertRule{.name = "GradvaneTrainingLossNonFinite",
              .severity = Severity::critical,
              .group = "nonfinite",
              .summary = "The loss is NaN or infinite",
              .description = "the loss is not finite."},
    AlertRule{.name = "GradvaneTrainingStalled",
              .severity = Severity::critical,
              .group = "run",
              .summary = "No optimizer step for long",
              .description = "the process is alive and makes no steps.",
              .keeps_firing = false},
    AlertRule{.name = "GradvaneTrainingRunFailed",
              .severity = Severity::critical,
              .group = "run",
              .summary = "A training run has failed",
              .description =
                  "the process reported that the run failed, by an exception or an exit status, or "
                  "that a policy of Gradvane stopped it.",
              .keeps_firing = false},
    AlertRule{.name = "GradvaneTrainingRunTerminated",
              .severity = Severity::warning,
              .group = "run",
              .summary = "A training run was terminated",
              .description = "SIGTERM ended the process, as a scheduler or a preemption does.",
              .keeps_firing = false},
    AlertRule{.name = "GradvaneLossDiverging",
              .severity = Severity::warning,
              .group = "loss",
              .summary = "The loss is diverging",
              .description = "several losses in a row lie far above those before."},
    AlertRule{.name = "GradvaneLossBackToRandomGuessing",
              .severity = Severity::warning,
              .group = "loss",
              .summary = "The model had learned and is back to guessing",
              .description = "the loss is back at the level of random guessing."},
    AlertRule{.name = "GradvaneLossSpike",
              .severity = Severity::info,
              .group = "loss",
              .summary = "One loss far above those before",
              .description = "one loss lies far above those before."},
    AlertRule{.name = "GradvaneGradientNormExploding",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "The gradient norm is far above its own history",
              .description = "the gradient norm is far above its own history, or above the bound "
                             "at which steps are skipped."},
    AlertRule{.name = "GradvaneGradientsVanishing",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "Most parameters have next to no gradient",
              .description = "most parameters have gradients below the vanishing threshold."},
    AlertRule{.name = "GradvaneGradientNormDrift",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "The gradient norm is moving away from its running mean",
              .description = "the gradient norm keeps moving away from its running mean."},
    AlertRule{.name = "GradvaneGradientHealthLow",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "The gradient health score is low",
              .description = "the health score of the gradients is low."},
    AlertRule{.name = "GradvaneDeadParameterGroup",
              .severity = Severity::warning,
              .group = "gradients",
              .summary = "A parameter group gets no gradient any more",
              .description = "every gradient of a parameter group has been zero, step after step."},
    AlertRule{
        .name = "GradvaneAmpOverflowStreak",
        .severity = Severity::warning,
        .group = "steps",
        .summary = "The gradient scaler skips step after step",
        .description = "the gradient scaler has skipped many steps in a row because of overflow."},
    AlertRule{.name = "GradvaneTrainingStepsSkipped",
              .severity = Severity::warning,
              .group = "steps",
              .summary = "Many steps change nothing",
              .description = "a large share of the steps leaves the weights as they were."},
    AlertRule{.name = "GradvaneTrainingRolledBack",
              .severity = Severity::warning,
              .group = "steps",
              .summary = "The training went back to a snapshot",
              .description = "a policy or the script took the training back to a snapshot of its "
                             "state, and the steps since then are lost."},
    AlertRule{.name = "GradvaneRankAgreementLost",
              .severity = Severity::warning,
              .group = "steps",
              .summary = "Ranks do not decide together any more",
              .description = "ranks were to decide on bad steps together, and each decides alone "
                             "now: one may skip a step that another takes."},
    AlertRule{.name = "GradvaneReplicaMismatch",
              .severity = Severity::critical,
              .group = "steps",
              .summary = "Ranks that train the same model have different weights",
              .description = "ranks that had the same weights have others now: their gradients are "
                             "averaged for a model that no rank has."},
    AlertRule{.name = "GradvaneHostSyncBudgetExceeded",
              .severity = Severity::warning,
              .group = "steps",
              .summary = "Steps wait for the GPU more often than they may",
              .description = "steps have more host syncs than their budget."},
    AlertRule{.name = "GradvaneAgentDroppingData",
              .severity = Severity::warning,
              .group = "agent",
              .summary = "Gradvane loses records of steps or cannot export them",
              .description = "records were lost or could not be exported."},
    AlertRule{
        .name = "GradvaneAgentOverCostBudget",
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

inline constexpr const AlertRule* kRunFailedRule = alert_rule("GradvaneTrainingRunFailed");
inline constexpr const AlertRule* kRunTerminatedRule = alert_rule("GradvaneTrainingRunTerminated");

/// Null for an end that no one has to hear of: it went well, or someone pressed Ctrl-C.
constexpr const AlertRule* alert_rule(EndReason reason) noexcept {
  switch (reason) {
    case EndReason::error:
    case EndReason::exit_status:
    case EndReason::stopped:
      return kRunFailedRule;
    case EndReason::terminated:
      return kRunTerminatedRule;
    case EndReason::finished:
    case EndReason::interrupted:
      break;
  }
  return nullptr;
}

/// The names of all alerts begin with this, and all have the label `component` with kAlertComponent: a
/// Prometheus has alerts of many programs.
inline constexpr std::string_view kAlertPrefix = "Gradvane";
inline constexpr std::string_view kAlertComponent = "gradvane";

/// The name of its runbook: training-non-finite for GradvaneTrainingNonFinite.
[[nodiscard]] inline std::string runbook_of(const AlertRule& rule) {
  std::string file;
  for (const char letter : rule.name.substr(kAlertPrefix.size())) {
    const bool is_upper = letter >= 'A' && letter <= 'Z';
    if (is_upper && !file.empty()) file += '-';
    file += is_upper ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return file;
}

}  // namespace gradvane::record
