#include "detectors/judge.hpp"

#include <utility>

#include "record/names.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;

void set_default(Judged& judged, bool value) {
  judged.fill(value);
  judged[index_of(IncidentClass::grad_health)] = false;
}

/// One word of the list. False where it is none.
bool take_word(std::string_view word, Judged& judged) {
  const bool value = !word.starts_with('-');
  if (!value) word.remove_prefix(1);
  if (word == "none" && value) return judged.fill(false), true;
  if (word == "all") return judged.fill(value), true;
  if (word == "default" && value) return set_default(judged, true), true;
  const auto kind = record::named<IncidentClass>(word);
  if (!kind) return false;
  judged[index_of(*kind)] = value;
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

/// The switches of each rule, from the list of classes.
Settings switched(Settings settings) {
  const auto judges = [&](IncidentClass kind) { return settings.judged[index_of(kind)]; };
  settings.loss.judge_spike = judges(IncidentClass::loss_spike);
  settings.loss.judge_divergence = judges(IncidentClass::loss_divergence);
  if (!judges(IncidentClass::random_guess)) settings.loss.random_guess.reset();
  settings.norm.judge_exploding = judges(IncidentClass::grad_exploding);
  settings.norm.judge_drift = judges(IncidentClass::grad_norm_drift);
  settings.gradient.judge_vanishing = judges(IncidentClass::grad_vanishing);
  settings.gradient.judge_health = judges(IncidentClass::grad_health);
  settings.gradient.judge_dead = judges(IncidentClass::dead_group);
  settings.skip.judge_overflow = judges(IncidentClass::amp_overflow);
  settings.skip.judge_skipped = judges(IncidentClass::skipped_steps);
  settings.agent.judge_dropped = judges(IncidentClass::data_dropped);
  settings.agent.judge_cost = judges(IncidentClass::agent_cost);
  settings.syncs.judge_training = judges(IncidentClass::sync_budget);
  settings.syncs.judge_own = judges(IncidentClass::own_sync_budget);
  if (!judges(IncidentClass::stalled)) settings.stall_seconds = 0;
  return settings;
}

NonfiniteDetector::Sites sites_of(const Judged& judged) {
  NonfiniteDetector::Sites sites{};
  for (std::size_t s = 0; s < sites.size(); ++s) sites[s] = judged[s];
  return sites;
}
static_assert(static_cast<int>(IncidentClass::nonfinite_loss) ==
                  static_cast<int>(record::Site::loss) &&
              static_cast<int>(IncidentClass::nonfinite_weight) ==
                  static_cast<int>(record::Site::weight));

}  // namespace

std::string parse_judged(std::string_view text, Judged& judged) {
  Judged result{};
  for (;;) {
    const auto comma = text.find(',');
    const std::string_view word = trimmed(text.substr(0, comma));
    if (!take_word(word, result)) return "\"" + std::string(word) + "\" is no class of incidents";
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  judged = result;
  return {};
}

Judge::Judge(std::int32_t rank, const Settings& settings, Report report)
    : rank_(rank),
      settings_(switched(settings)),
      report_(std::move(report)),
      nonfinite_(rank, sites_of(settings_.judged), ids_, report_),
      syncs_(rank, settings_.syncs, ids_, report_),
      agent_(rank, settings_.agent, settings_.cooldown_seconds, ids_, report_),
      stall_(rank, settings_.stall_seconds, ids_, report_) {}

Judge::PerOptimizer& Judge::rules_of(std::int32_t optimizer) {
  const auto known = by_optimizer_.find(optimizer);
  if (known != by_optimizer_.end()) return known->second;
  const double cooldown = settings_.cooldown_seconds;
  return by_optimizer_
      .emplace(optimizer, PerOptimizer{{rank_, settings_.loss, cooldown, ids_, report_},
                                       {rank_, settings_.norm, cooldown, ids_, report_},
                                       {rank_, settings_.gradient, cooldown, ids_, report_},
                                       {rank_, settings_.skip, cooldown, ids_, report_}})
      .first->second;
}

void Judge::observe(const record::StepRecord& step, const record::StepDetail& detail,
                    const record::ModelInfo& model, const Moment& seen) {
  stall_.step(seen);
  nonfinite_.observe(step, model);
  PerOptimizer& rules = rules_of(step.optimizer);
  rules.skip.observe(step, nonfinite_.is_open());
  agent_.observe(step);
  if (!step.is_step() || step.is_handled_overflow()) return;
  rules.loss.observe(step);
  rules.norm.observe(step);
  rules.gradient.observe(step, detail, model);
}

void Judge::tell_open(const Report& tell) const {
  nonfinite_.tell_open(tell);
  syncs_.tell_open(tell);
  agent_.tell_open(tell);
  stall_.tell_open(tell);
  for (const auto& [optimizer, rules] : by_optimizer_) {
    rules.loss.tell_open(tell);
    rules.norm.tell_open(tell);
    rules.gradient.tell_open(tell);
    rules.skip.tell_open(tell);
  }
}

void Judge::observe_syncs(const record::StepRecord& step, const SyncBudgetDetector::Sites& sites) {
  syncs_.observe(step, sites);
}

}  // namespace gradvane::detectors
