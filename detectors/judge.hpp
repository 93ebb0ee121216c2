#pragma once
// All detectors of a run: each step goes to every one of them, in the order in which causes come before
// their effects.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "detectors/incident_book.hpp"
#include "detectors/incident_slot.hpp"
#include "detectors/nonfinite.hpp"
#include "detectors/rules/agent_rules.hpp"
#include "detectors/rules/agreement_rules.hpp"
#include "detectors/rules/gradient_rules.hpp"
#include "detectors/rules/loss_rules.hpp"
#include "detectors/rules/norm_rules.hpp"
#include "detectors/rules/replica_rules.hpp"
#include "detectors/rules/rollback_rules.hpp"
#include "detectors/rules/skip_rules.hpp"
#include "detectors/stall.hpp"
#include "detectors/sync_budget.hpp"
#include "record/incident.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

/// Reads a list such as "default,-loss_spike,grad_health": classes, `default` (all but grad_health),
/// `panic_v1` and `all`, each added, or with a `-` in front taken away; "none" is an empty list. Returns why it is not
/// one, or an empty text.
[[nodiscard]] std::string parse_judged(std::string_view text, Judged& judged);

struct Settings {
  Judged judged{};
  bool is_alone = true;  ///< no other rank trains
  double cooldown_seconds = 60;
  double stall_seconds = 300;
  LossSettings loss;
  NormSettings norm;
  GradientSettings gradient;
  SkipSettings skip;
  AgentSettings agent;
  SyncBudgetDetector::Budget syncs;
};

/// Steps of several optimizers are judged apart where a rule compares them with their own history.
/// Threading: one thread.
class Judge {
 public:
  Judge(std::int32_t rank, const Settings& settings, Report report);
  Judge(const Judge&) = delete;  // its detectors hold the address of its book
  Judge& operator=(const Judge&) = delete;

  /// From the next step on. `loss.window`, `loss.in_a_row`, `skip.overflow_streak` and `cooldown_seconds` stay as they
  /// were. Incidents that are not judged any more end at the moment `now`.
  void change(const Settings& settings, const Moment& now);
  /// Judges one step; `seen` is the moment it came to be known, which stalls are counted from.
  /// Throws only what `report` throws, and std::bad_alloc.
  void observe(const record::StepRecord& step, const record::StepDetail& detail,
               const record::ModelInfo& model, const Moment& seen);
  /// The host syncs of one step.
  void observe_syncs(const record::StepRecord& step, const SyncBudgetDetector::Sites& sites);
  /// About once a second, while the run lasts. `paused_seconds` as in StallDetector::tick().
  void tick(const Moment& now, double paused_seconds = 0) { stall_.tick(now, paused_seconds); }
  void trace_found(const record::TracedModule& module) { nonfinite_.trace_found(module); }
  /// The training went back at the moment `seen`: to be called before the first step after that is judged. Incidents of
  /// the steps that are undone end, so that a relapse is a new one.
  void rolled_back(const record::Rollback& rollback, const Moment& seen);
  /// Ranks do not decide together any more, from the moment `seen` on.
  void agreement_lost(std::string_view why, const Moment& seen) { agreement_.lost(why, seen); }
  /// Ranks have compared their weights, and there is news.
  void replicas_compared(const record::ReplicaComparison& comparison, const Moment& seen) {
    replicas_.compared(comparison, seen);
  }
  /// Whether the latest steps look like the beginning of a divergence.
  [[nodiscard]] bool may_diverge() const noexcept;
  /// Incidents that are open, with the steps they have had up to now.
  void tell_open(const Report& tell) const;
  void fill(record::SyncSummary& summary) const { syncs_.fill(summary); }

 private:
  struct PerOptimizer {
    LossRules loss;
    NormRules norm;
    GradientRules gradient;
    SkipRules skip;
  };
  PerOptimizer& rules_of(std::int32_t optimizer);

  std::int32_t rank_;
  Settings settings_;
  Report report_;
  IncidentBook book_;
  NonfiniteDetector nonfinite_;
  SyncBudgetDetector syncs_;
  AgentRules agent_;
  StallDetector stall_;
  RollbackRules rollbacks_;
  AgreementRules agreement_;
  ReplicaRules replicas_;
  std::map<std::int32_t, PerOptimizer> by_optimizer_;
};

}  // namespace gradvane::detectors
