#pragma once
// The alerts that are pushed: the same words as the rules for Prometheus in dashboards/alerts, held
// against them by a test. An alert of both has one set of labels, and Alertmanager takes it for
// one.
#include <array>
#include <string_view>

#include "record/incident.hpp"

namespace gradvane::exporters {

struct AlertRule {
  std::string_view name;
  std::string_view severity;
  std::string_view summary;  ///< what it is, the same for every run
  bool keeps_firing = true;  ///< for a while after its reason is gone, as the rule does
  std::string_view file;     ///< of its runbook
};

inline constexpr std::string_view kAlertCritical = "critical";
inline constexpr std::string_view kAlertWarning = "warning";
inline constexpr std::string_view kAlertInfo = "info";

inline constexpr std::array<AlertRule, 17> kAlertRules{{
    {"TrainingNonFinite", kAlertCritical, "NaN or infinity in gradients or weights", true,
     "training-non-finite.md"},
    {"TrainingLossNonFinite", kAlertCritical, "The loss is NaN or infinite", true,
     "training-loss-non-finite.md"},
    {"TrainingStalled", kAlertCritical, "No optimizer step for long", false, "training-stalled.md"},
    {"TrainingRunFailed", kAlertCritical, "A training run has failed", false,
     "training-run-failed.md"},
    {"LossDiverging", kAlertWarning, "The loss is diverging", true, "loss-diverging.md"},
    {"LossBackToRandomGuessing", kAlertWarning, "The model had learned and is back to guessing",
     true, "loss-back-to-random-guessing.md"},
    {"LossSpike", kAlertInfo, "One loss far above those before", true, "loss-spike.md"},
    {"GradientNormExploding", kAlertWarning, "The gradient norm is far above its own history", true,
     "gradient-norm-exploding.md"},
    {"GradientsVanishing", kAlertWarning, "Most parameters have next to no gradient", true,
     "gradients-vanishing.md"},
    {"GradientNormDrift", kAlertWarning, "The gradient norm is moving away from its running mean",
     true, "gradient-norm-drift.md"},
    {"GradientHealthLow", kAlertWarning, "The gradient health score is low", true,
     "gradient-health-low.md"},
    {"DeadParameterGroup", kAlertWarning, "A parameter group gets no gradient any more", true,
     "dead-parameter-group.md"},
    {"AmpOverflowStreak", kAlertWarning, "The gradient scaler skips step after step", true,
     "amp-overflow-streak.md"},
    {"TrainingStepsSkipped", kAlertWarning, "Many steps change nothing", true,
     "training-steps-skipped.md"},
    {"HostSyncBudgetExceeded", kAlertWarning, "Steps wait for the GPU more often than they may",
     true, "host-sync-budget-exceeded.md"},
    {"AgentDroppingData", kAlertWarning, "Gradvane loses records of steps or cannot export them",
     true, "agent-dropping-data.md"},
    {"AgentOverCostBudget", kAlertWarning, "Gradvane costs more of the training time than it may",
     true, "agent-over-cost-budget.md"},
}};

constexpr const AlertRule* alert_rule(std::string_view name) {
  for (const AlertRule& rule : kAlertRules)
    if (rule.name == name) return &rule;
  return nullptr;
}

inline constexpr const AlertRule* kRunFailedRule = alert_rule("TrainingRunFailed");

/// The rule that watches incidents of this class; nullptr where none does: such incidents are not
/// pushed.
constexpr const AlertRule* alert_rule(record::IncidentClass kind) {
  using enum record::IncidentClass;
  switch (kind) {
    case nonfinite_grad:
    case nonfinite_weight:
      return alert_rule("TrainingNonFinite");
    case nonfinite_loss:
      return alert_rule("TrainingLossNonFinite");
    case stalled:
      return alert_rule("TrainingStalled");
    case loss_divergence:
      return alert_rule("LossDiverging");
    case random_guess:
      return alert_rule("LossBackToRandomGuessing");
    case loss_spike:
      return alert_rule("LossSpike");
    case grad_exploding:
      return alert_rule("GradientNormExploding");
    case grad_vanishing:
      return alert_rule("GradientsVanishing");
    case grad_norm_drift:
      return alert_rule("GradientNormDrift");
    case grad_health:
      return alert_rule("GradientHealthLow");
    case dead_group:
      return alert_rule("DeadParameterGroup");
    case amp_overflow:
      return alert_rule("AmpOverflowStreak");
    case skipped_steps:
      return alert_rule("TrainingStepsSkipped");
    case sync_budget:
    case own_sync_budget:
      return alert_rule("HostSyncBudgetExceeded");
    case data_dropped:
      return alert_rule("AgentDroppingData");
    case agent_cost:
      return alert_rule("AgentOverCostBudget");
  }
  return nullptr;
}

}  // namespace gradvane::exporters
