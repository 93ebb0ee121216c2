#include "detectors/judge.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "record/incident_classes.hpp"
#include "record/names.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;

/// What the rollback governor of esper-lite reacts to, and the rollback itself.
constexpr std::array kPanic{IncidentClass::nonfinite_loss, IncidentClass::random_guess,
                            IncidentClass::loss_divergence, IncidentClass::rollback};

/// One word of the list. False where it is none.
bool take_word(std::string_view word, Judged& judged) {
  const bool value = !word.starts_with('-');
  if (!value) word.remove_prefix(1);
  if (word == "none" && value) return judged.fill(false), true;
  if (word == "all") return judged.fill(value), true;
  if (word == "default" && value) return judged = default_judged(), true;
  if (word == "panic_v1") {
    for (const IncidentClass kind : kPanic) judged[index_of(kind)] = value;
    return true;
  }
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
      settings_(settings),
      report_(std::move(report)),
      book_(settings_.judged),
      nonfinite_(rank, settings_.is_alone, book_, report_),
      syncs_(rank, settings_.syncs, book_, report_),
      agent_(rank, settings_.agent, settings_.cooldown_seconds, book_, report_),
      stall_(rank, settings_.stall_seconds, book_, report_),
      rollbacks_(rank, book_, report_),
      agreement_(rank, book_, report_),
      replicas_(rank, book_, report_) {}

Judge::PerOptimizer& Judge::rules_of(std::int32_t optimizer) {
  const auto known = by_optimizer_.find(optimizer);
  if (known != by_optimizer_.end()) return known->second;
  const double cooldown = settings_.cooldown_seconds;
  return by_optimizer_
      .emplace(optimizer, PerOptimizer{{rank_, settings_.loss, cooldown, book_, report_},
                                       {rank_, settings_.norm, cooldown, book_, report_},
                                       {rank_, settings_.gradient, cooldown, book_, report_},
                                       {rank_, settings_.skip, cooldown, book_, report_}})
      .first->second;
}

void Judge::change(const Settings& settings, const Moment& now) {
  settings_ = settings;
  book_.change(settings.judged);
  syncs_.change(settings.syncs, now);
  agent_.change(settings.agent, now);
  stall_.change(settings.stall_seconds, now);
  for (auto& [optimizer, rules] : by_optimizer_) {
    rules.loss.change(settings.loss, now);
    rules.norm.change(settings.norm, now);
    rules.gradient.change(settings.gradient, now);
    rules.skip.change(settings.skip, now);
  }
}

void Judge::observe(const record::StepRecord& step, const record::StepDetail& detail,
                    const record::ModelInfo& model, const Moment& seen) {
  stall_.step(seen, step.step_seconds);
  nonfinite_.observe(step, model);
  PerOptimizer& rules = rules_of(step.optimizer);
  rules.skip.observe(step, nonfinite_.is_open());
  agent_.observe(step);
  if (!step.is_step() || step.is_handled_overflow()) return;
  rules.loss.observe(step);
  rules.norm.observe(step);
  rules.gradient.observe(step, detail, model);
}

void Judge::rolled_back(const record::Rollback& rollback, const Moment& seen) {
  rollbacks_.observe(rollback, seen);
  nonfinite_.went_back(seen);
  for (auto& [optimizer, rules] : by_optimizer_) {
    rules.loss.went_back(seen);
    rules.norm.went_back(seen);
  }
}

bool Judge::may_diverge() const noexcept {
  return std::ranges::any_of(by_optimizer_, [](const auto& known) {
    return known.second.loss.has_outliers() || known.second.norm.is_high();
  });
}

void Judge::tell_open(const Report& tell) const {
  nonfinite_.tell_open(tell);
  syncs_.tell_open(tell);
  agent_.tell_open(tell);
  stall_.tell_open(tell);
  agreement_.tell_open(tell);
  replicas_.tell_open(tell);
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
