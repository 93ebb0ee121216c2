#include "detectors/rules/gradient_rules.hpp"

#include <algorithm>
#include <utility>

#include "detectors/number_words.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::ParamState;

constexpr std::size_t kNamed = 3;  // groups in a sentence

int params_with_gradient(const record::StepRecord& step) {
  int sum = 0;
  for (const ParamState state : {ParamState::zero, ParamState::finite, ParamState::nonfinite})
    sum += step.params[index_of(state)];
  return sum;
}

}  // namespace

GradientRules::GradientRules(std::int32_t rank, const GradientSettings& settings,
                             double cooldown_seconds, IncidentBook& book, Report report)
    : settings_(settings),
      vanishing_(IncidentClass::grad_vanishing, rank,
                 {kVanishingInARow, kCloseAfter, cooldown_seconds}, book),
      health_(IncidentClass::grad_health, rank, {kSickInARow, kCloseAfter, cooldown_seconds}, book),
      dead_(IncidentClass::dead_group, rank, {1, kCloseAfter, cooldown_seconds}, book),
      report_(std::move(report)) {}

void GradientRules::observe(const record::StepRecord& step, const record::StepDetail& detail,
                            const record::ModelInfo& model) {
  if (!step.grad_norm && !step.shard_grad_norm) return;
  if (step.has_nonfinite(record::Site::grad)) return;
  judge_vanishing(step);
  judge_health(step);
  judge_dead(step, detail, model);
}

void GradientRules::judge_vanishing(const record::StepRecord& step) {
  const int params = params_with_gradient(step);
  if (params == 0) return;
  const double share = static_cast<double>(step.vanishing) / params;
  vanishing_.judge(
      share >= settings_.vanishing_share, step,
      [&](record::Incident& incident) {
        incident.evidence = "Step " + std::to_string(step.run_step) + ": " +
                            std::to_string(step.vanishing) + " of " + std::to_string(params) +
                            " parameters (" + percent(share) + ") have next to no gradient, for " +
                            std::to_string(kVanishingInARow) + " steps in a row.";
      },
      report_);
}

void GradientRules::judge_health(const record::StepRecord& step) {
  if (!step.grad_health) return;
  const double health = *step.grad_health;
  if (health >= kSick && health < kWell && health_.is_open()) return;  // neither sick nor well
  health_.judge(
      health < kSick, step,
      [&](record::Incident& incident) {
        incident.evidence = "Step " + std::to_string(step.run_step) +
                            ": the health of the gradients is " + words_of(health) + " (" +
                            std::to_string(step.vanishing) + " parameters vanish, " +
                            std::to_string(step.exploding) + " explode).";
      },
      report_);
}

void GradientRules::judge_dead(const record::StepRecord& step, const record::StepDetail& detail,
                               const record::ModelInfo& model) {
  const std::size_t groups = std::min(detail.groups.size(), model.groups.size());
  if (model.id != model_id_) {
    model_id_ = model.id;
    zero_in_a_row_.assign(groups, 0);
  }
  zero_in_a_row_.resize(groups);
  bool any_alive = false;
  std::vector<std::size_t> dead;
  for (std::size_t g = 0; g < groups; ++g) {
    const record::GroupStats& group = detail.groups[g];
    if (group.params == 0 || !group.grad_zero_ratio) continue;
    const bool is_zero = *group.grad_zero_ratio >= 1;
    zero_in_a_row_[g] = is_zero ? zero_in_a_row_[g] + 1 : 0;
    any_alive |= !is_zero;
    if (zero_in_a_row_[g] >= settings_.dead_after) dead.push_back(g);
  }
  if (!any_alive) return;  // all of it is zero: that is told as vanishing
  dead_.judge(
      !dead.empty(), step,
      [&](record::Incident& incident) {
        incident.group = model.groups[dead.front()];
        incident.first_step = std::max<std::int64_t>(1, step.run_step - settings_.dead_after + 1);
        incident.evidence = "Step " + std::to_string(step.run_step) +
                            ": every gradient has been zero for " +
                            std::to_string(settings_.dead_after) + " steps in ";
        for (std::size_t i = 0; i < std::min(kNamed, dead.size()); ++i)
          incident.evidence += (i == 0 ? "" : ", ") + model.groups[dead[i]];
        if (dead.size() > kNamed)
          incident.evidence += " and " + std::to_string(dead.size() - kNamed) + " more groups";
        incident.evidence += ", and not elsewhere.";
      },
      report_);
}

}  // namespace gradvane::detectors
