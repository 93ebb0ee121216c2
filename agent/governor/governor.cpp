#include "agent/governor/governor.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "record/clocks.hpp"
#include "record/names.hpp"
#include "record/run/end_reason.hpp"

namespace gradvane::agent {
namespace {

using record::IncidentClass;

constexpr int kDefaultSnapshotEvery = 100;
constexpr int kBadInARow = 3;  ///< most of any divergence but that of the loss

SnapshotPace pace_of(const Options& options) noexcept {
  SnapshotPace pace{options.snapshot_every, options.snapshot_seconds, options.snapshot_budget};
  if (!pace.is_on() && ranks::policy_of(options).rolls_back()) pace.steps = kDefaultSnapshotEvery;
  pace.is_common = options.world_size > 1 && options.ranks == RankAgreement::agree;
  return pace;
}

Verdict verdict_of(DivergencePolicy policy) noexcept {
  constexpr std::array kVerdicts{Verdict::take, Verdict::stop, Verdict::rollback};
  return kVerdicts[static_cast<std::size_t>(policy)];
}

}  // namespace

Governor::Stops Governor::stops_of(const Decision& decision) noexcept {
  if (decision.verdict != Verdict::stop) return Stops::no;
  return decision.lacks_agreement ? Stops::without_agreement : Stops::yes;
}

Governor::Governor(const Options& options)
    : policy_(ranks::policy_of(options)),
      acts_(options.enabled && policy_.all().acts()),
      needs_norm_(acts_on_nonfinite() && options.skip_norm > 0),
      loss_in_a_row_(options.loss_in_a_row),
      pace_(pace_of(options)),
      rollback_limit_(options.rollback_limit),
      rollback_window_(options.rollback_window),
      rollback_options_{.optimizer = options.rollback_optimizer,
                        .lr_factor = options.rollback_lr_factor},
      rollback_device_sync_(options.rollback_device_sync),
      is_alone_(options.world_size <= 1),
      leaves_to_device_(options.skip_on_device && is_alone_),
      lockstep_(options.enabled && !is_alone_ && options.ranks == RankAgreement::agree &&
                (acts_ || options.compare_replicas_every > 0 || options.check_before_reduction)) {
  static_assert(std::atomic<Acted>::is_always_lock_free, "any thread may ask at any time");
  if (agrees()) summary_.ranks_agree = true;
}

Decision Governor::judge(const StepFinding& step) noexcept try {
  if (!acts_) return {};
  if (!step.is_agreed) policy_.take_wanted();
  ++judged_;
  if (!step.is_measured) sees_devices_.store(true, std::memory_order_relaxed);
  if (owes_stop_.exchange(false, std::memory_order_relaxed)) {
    if (step.can_skip) skipped_.fetch_add(1, std::memory_order_relaxed);
    const Acted acted = latest_.load();
    return {.verdict = Verdict::stop, .fault = acted.fault, .is_escalated = acted.is_escalated};
  }
  const Decision decision = decide(step, fault_of(step));
  if (decision.verdict == Verdict::rollback) {
    went_back_at_ = record::monotonic_time();
    went_back_behind_ = step.run_step;
    (void)lockstep_.take_incident();  // one that another rank told of steps that are undone
  }
  if (decision.verdict != Verdict::take && step.can_skip)
    skipped_.fetch_add(1, std::memory_order_relaxed);
  if (decision.verdict == Verdict::stop || decision.verdict == Verdict::rollback) {
    {
      const std::lock_guard lock(mutex_);
      grounds_ = {step.norm.value_or(0), policy_.norm_bound(),
                  decision.fault == Fault::incident ? acts_on_ : PendingIncident{}};
    }
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const std::int64_t at = decision.skipped_at > 0 ? decision.skipped_at : step.run_step;
    latest_.store({static_cast<std::int32_t>(std::min(at, kMost)), decision.fault,
                   decision.is_escalated, stops_of(decision), acts_on_.kind});
  }
  return decision;
} catch (...) {  // no memory for an optimizer's counts: its step is taken, as without a policy
  return {};
}

/// Each test of a number comes behind those for NaN and infinity, and is one that NaN does not
/// pass.
Fault Governor::fault_of(const StepFinding& step) noexcept {
  // Each process has its own loss. Gradients have been reduced over all of them, so that every
  // process decides the same by them.
  if (step.loss_is_bad && (is_alone_ || step.is_agreed) &&
      !(step.has_scaler && step.gradients_are_bad))
    return Fault::loss;
  if (step.gradients_are_bad) return step.has_scaler ? Fault::overflow : Fault::gradient;
  const double bound = policy_.norm_bound();
  if (bound > 0 && step.norm && !(*step.norm <= bound)) return Fault::norm;
  return Fault::none;
}

Decision Governor::decide(const StepFinding& step, Fault fault) {
  int& overflows = entry(overflows_, step.optimizer);
  overflows = fault == Fault::overflow ? overflows + 1 : 0;
  if (fault == Fault::overflow && overflows <= kTrustedOverflows) return {};  // the scaler's affair
  if (fault == Fault::none) {
    const auto last =
        step.is_left ? std::nullopt : skips_.taken(step.optimizer, policy_.skip_limit());
    if (last && policy_.on_nonfinite() == NonfinitePolicy::skip) return skipped_too_often(*last);
    return by_incident(step);
  }
  switch (policy_.on_nonfinite()) {
    case NonfinitePolicy::watch:
      return by_incident(step);
    case NonfinitePolicy::stop:
      return by_policy(Verdict::stop, fault, false);
    case NonfinitePolicy::rollback:
      return by_policy(Verdict::rollback, fault, false);
    case NonfinitePolicy::skip:
      break;
  }
  if (!step.can_skip) return by_incident(step);
  if (const auto last = skips_.skipped(step.optimizer, step.run_step, fault, policy_.skip_limit()))
    return skipped_too_often(*last);
  // The scaler skips an overflow by itself.
  return fault == Fault::overflow ? Decision{} : Decision{.verdict = Verdict::skip, .fault = fault};
}

/// By what the worker has found of earlier steps. A step that is bad and taken all the same does not keep it from acting.
Decision Governor::by_incident(const StepFinding& step) noexcept {
  auto incident = take_agreed_incident();  // also one that was told before ranks ceased to agree
  if (!incident && !step.is_agreed) incident = take_own_incident();
  if (!incident) return {};
  acts_on_ = *std::move(incident);
  if (record::is_divergence(acts_on_.kind))
    return by_policy(verdict_of(policy_.on_divergence()), Fault::incident, false);
  const bool goes_back = policy_.on_nonfinite() == NonfinitePolicy::rollback;
  return by_policy(goes_back ? Verdict::rollback : Verdict::stop, Fault::incident, false);
}

/// Of one event several incidents may open, some steps apart, and on several ranks. Once the training has gone back, all
/// those of the steps that are undone are over.
std::optional<PendingIncident> Governor::take_own_incident() noexcept {
  if (incidents_.load(std::memory_order_acquire) == seen_incidents_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  seen_incidents_ = incidents_.load(std::memory_order_relaxed);
  if (judged_at_ <= went_back_at_) return std::nullopt;
  PendingIncident own = incident_;
  // What came back has no first step of its own: it may be of steps that are undone.
  own.bad_since = std::max(own.bad_since, std::min(went_back_behind_ + 1, last_bad_));
  return own;
}

/// It may be one that another rank alone has seen.
std::optional<PendingIncident> Governor::take_agreed_incident() noexcept {
  auto incident = lockstep_.take_incident();
  if (!incident) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (incident_.kind == incident->kind && incident_.bad_since == incident->bad_since)
    incident->words = incident_.words;
  return incident;
}

ranks::RankRecord Governor::tell(const StepFinding& step) noexcept {
  policy_.take_wanted();
  return lockstep_.tell(step, take_own_incident(), policy_.all());
}

Decision Governor::judge_together(const StepFinding& step, std::span<const std::string> records,
                                  const std::function<std::string(std::int32_t)>& name_of) noexcept
    try {
  const ranks::Outcome outcome = ranks::agree(records);
  if (!outcome.agreement) {
    lose_agreement(outcome.why_not);
    return judge(step);
  }
  const ranks::Agreement& agreed = *outcome.agreement;
  if (agreed.policy) policy_.follow(*agreed.policy);
  Decision decision = judge(lockstep_.join(step, agreed));
  decision.origin = agreed.origin;
  if (decision.verdict == Verdict::take || decision.fault == Fault::incident) return decision;
  log("step " + std::to_string(step.run_step) + ": " +
      std::string(agent::name_of(decision.verdict)) + " on all ranks; " +
      ranks::origin_of(agreed, name_of));
  return decision;
} catch (...) {  // no memory for the records: ranks are no longer in step
  lose_agreement("no memory");
  return judge(step);
}

void Governor::lose_agreement(const std::string& why) noexcept try {
  if (!agrees()) return;
  lockstep_.end();
  const std::lock_guard lock(mutex_);
  summary_.ranks_agree = false;
  lost_agreement_ = why;
} catch (...) {  // no memory for the reason
}

std::optional<std::int64_t> Governor::agreed_snapshot() const noexcept {
  return agrees() ? std::optional(lockstep_.common_snapshot(diverges_since())) : std::nullopt;
}

std::int64_t Governor::leave_to_device(int optimizer, bool in_graph) noexcept try {
  if (!leaves_to_device_ || policy_.on_nonfinite() != NonfinitePolicy::skip ||
      policy_.norm_bound() > 0)
    return 0;
  return skips_.leave(optimizer, in_graph);
} catch (...) {  // no memory for an optimizer's row
  return 0;
}

void Governor::note_device_outcome(int optimizer, std::int64_t number, std::int64_t run_step,
                                   Fault fault) noexcept try {
  if (fault != Fault::none) skipped_.fetch_add(1, std::memory_order_relaxed);
  skips_.note_outcome(optimizer, {.number = number, .run_step = run_step, .fault = fault});
} catch (...) {  // no memory: it is in no row
}

Decision Governor::skipped_too_often(const SkipRows::Skip& last) noexcept {
  Decision decision =
      by_policy(pace_.is_on() ? Verdict::rollback : Verdict::stop, last.fault, true);
  decision.skipped_at = last.run_step;
  return decision;
}

/// A rollback is one only within its limit, and never one rank's own: others would go on with other weights.
Decision Governor::by_policy(Verdict wanted, Fault fault, bool is_escalated) noexcept {
  if (wanted == Verdict::rollback && !is_alone_ && !agrees())
    return {.verdict = Verdict::stop,
            .fault = fault,
            .is_escalated = is_escalated,
            .lacks_agreement = true};
  if (wanted == Verdict::rollback && !may_roll_back())
    return {.verdict = Verdict::stop, .fault = fault, .is_escalated = true};
  return {.verdict = wanted, .fault = fault, .is_escalated = is_escalated};
}

bool Governor::may_roll_back() const noexcept {
  const auto recent = std::ranges::count_if(
      rollbacks_, [this](std::int64_t at) { return judged_ - at < rollback_window_; });
  return recent < rollback_limit_;
}

std::optional<std::int64_t> Governor::diverges_since() const noexcept {
  if (rollback_reason() != record::RollbackReason::divergence) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return grounds_.incident.bad_since;
}

record::RollbackReason Governor::rollback_reason() const noexcept {
  const Acted acted = latest_.load();
  if (acted.fault == Fault::incident && record::is_divergence(acted.kind))
    return record::RollbackReason::divergence;
  return acted.is_escalated ? record::RollbackReason::skips_in_a_row
                            : record::RollbackReason::nonfinite;
}

void Governor::note_rollback(record::Rollback rollback, bool is_by_policy) noexcept try {
  rollback.monotonic = went_back_at_ = record::monotonic_time();
  went_back_behind_ = rollback.run_step;
  if (is_by_policy) {
    rollback.reason = rollback_reason();
    rollbacks_.push_back(judged_);
    while (judged_ - rollbacks_.front() >= rollback_window_) rollbacks_.pop_front();
  }
  const std::lock_guard lock(mutex_);
  has_summary_ = true;
  ++summary_.rollbacks[index_of(rollback.reason)];
  new_rollbacks_.put(std::move(rollback));
} catch (...) {  // no memory: it does not count
}

std::optional<std::string> Governor::take_lost_agreement() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lost_agreement_, std::nullopt);
}

void Governor::count_snapshot(record::SnapshotResult result) noexcept {
  const std::lock_guard lock(mutex_);
  has_summary_ = true;
  ++summary_.snapshots[index_of(result)];
}

void Governor::set_snapshots(std::span<const record::KeptSnapshot> good) noexcept {
  std::array<std::int64_t, ranks::kGenerations> run_steps{};
  for (std::size_t i = 0; i < std::min(good.size(), run_steps.size()); ++i)
    run_steps[i] = good[i].run_step;
  lockstep_.set_good_snapshots(run_steps);
  const std::lock_guard lock(mutex_);
  summary_.newest_snapshot = good.empty() ? std::nullopt : std::optional(good[0]);
  summary_.older_snapshot = good.size() < 2 ? std::nullopt : std::optional(good[1]);
  snapshots_set_ = record::monotonic_time();
}

std::optional<record::GovernorSummary> Governor::summary() const {
  const std::lock_guard lock(mutex_);
  record::GovernorSummary summary = summary_;
  summary.has_snapshots = has_summary_ || pace_.is_on();
  if (!summary.has_snapshots && !summary.ranks_agree) return std::nullopt;
  const double since = std::max(0.0, record::monotonic_time() - snapshots_set_);
  for (auto* snapshot : {&summary.newest_snapshot, &summary.older_snapshot})
    if (*snapshot) (*snapshot)->age_seconds += since;
  return summary;
}

void Governor::stop_instead() noexcept {
  Acted acted = latest_.load();
  acted.stops = Stops::without_snapshot;
  latest_.store(acted);
}

void Governor::stop_at_next_step() noexcept {
  stop_instead();
  owes_stop_.store(true, std::memory_order_relaxed);
}

int& Governor::entry(std::vector<int>& counts, int optimizer) {
  const auto index = static_cast<std::size_t>(std::max(optimizer, 0));
  if (index >= counts.size()) counts.resize(index + 1, 0);
  return counts[index];
}

/// What judge() sees by itself in time is left out here.
void Governor::note_incident(const record::Incident& incident, bool is_new,
                             double judged_at) noexcept {
  if (!is_new || incident.closed_at) return;
  const bool is_late = incident.kind == IncidentClass::nonfinite_weight ||
                       (sees_devices_.load(std::memory_order_relaxed) &&
                        (is_alone_ || incident.kind == IncidentClass::nonfinite_grad));
  if (!policy_.acts_on(incident.kind, is_late)) return;
  // One that came back has the step and the words of its first beginning. It was open again after
  // as many bad steps in a row as its class takes.
  const std::int64_t in_a_row = std::max(loss_in_a_row_, kBadInARow);
  const std::int64_t bad_since =
      incident.reopened > 0 ? incident.last_step - in_a_row + 1 : incident.first_step;
  PendingIncident pending{.kind = incident.kind, .bad_since = bad_since};
  try {
    if (incident.reopened == 0)
      pending.words = std::make_shared<const std::string>(incident.evidence);
  } catch (...) {  // no memory: the reason is shorter
  }
  const std::lock_guard lock(mutex_);
  incident_ = std::move(pending);
  last_bad_ = std::max(incident.first_step, incident.last_step);
  judged_at_ = judged_at;
  incidents_.fetch_add(1, std::memory_order_release);
}

void Governor::note_state(std::optional<std::int64_t> last_good_step, bool is_good,
                          bool may_diverge) noexcept {
  may_diverge_.store(may_diverge, std::memory_order_relaxed);
  last_good_step_.store(last_good_step.value_or(0), std::memory_order_relaxed);
  is_state_good_.store(is_good, std::memory_order_relaxed);
}

std::string Governor::reason() const {
  const Acted acted = latest_.load();
  const bool by_skips = acted.is_escalated && acted.fault != Fault::incident &&
                        policy_.on_nonfinite() == NonfinitePolicy::skip;
  const bool by_rollbacks = acted.stops == Stops::yes && acted.is_escalated && pace_.is_on();
  Grounds grounds;
  {
    const std::lock_guard lock(mutex_);
    grounds = grounds_;
  }
  return words_of({.run_step = acted.run_step,
                   .fault = acted.fault,
                   .skips_in_a_row = by_skips ? policy_.skip_limit() : 0,
                   .incident = acted.kind,
                   .evidence = grounds.incident.words ? *grounds.incident.words : std::string(),
                   .norm = grounds.norm,
                   .bound = grounds.bound,
                   .lacks_snapshot = acted.stops == Stops::without_snapshot,
                   .lacks_agreement = acted.stops == Stops::without_agreement,
                   .rollbacks = by_rollbacks ? rollback_limit_ : 0,
                   .window = rollback_window_});
}

std::string Governor::stop_reason() const {
  return should_stop() ? std::string(record::kStoppedText) + reason() : std::string();
}

GovernorStatus Governor::status() const {
  GovernorStatus status;
  status.should_stop = should_stop();
  status.reason = status.should_stop ? reason() : std::string();
  status.skipped_steps = skipped_.load(std::memory_order_relaxed);
  status.skips_in_a_row = skips_.in_a_row();
  status.is_state_good = is_state_good_.load(std::memory_order_relaxed);
  status.last_good_step = last_good_step_.load(std::memory_order_relaxed);
  return status;
}

}  // namespace gradvane::agent
