#pragma once
// Decides what becomes of a step: it is taken or skipped, the training goes back, or it stops. It
// carries out nothing itself: that is for the face of the agent whose optimizer it is.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/governor/checkpoints.hpp"
#include "agent/governor/decision.hpp"
#include "agent/governor/lockstep.hpp"
#include "agent/governor/mailbox.hpp"
#include "agent/governor/policy_in_force.hpp"
#include "agent/governor/skip_rows.hpp"
#include "agent/governor/step_finding.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/ranks/rank_record.hpp"
#include "record/governor_summary.hpp"
#include "record/incident.hpp"
#include "record/replica_comparison.hpp"
#include "record/rollback.hpp"

namespace gradvane::agent {

/// When snapshots of the training's state are due. 0: not by this.
struct SnapshotPace {
  int steps = 0;
  double seconds = 0;
  double budget = 0;  ///< share of the training's time that they may take; 0: any
  bool is_common =
      false;  ///< ranks agree: they are due at the same steps on each, whether or not one was refused

  [[nodiscard]] bool is_on() const noexcept { return steps > 0 || seconds > 0; }
};

/// One for each run. It keeps the count of what it decided, and what the worker has found out about
/// the state. Threading: judge(), leave_to_device(), note_rollback(), stop_instead(),
/// stop_at_next_step(), count_snapshot(), set_snapshots(), note_comparison(), log() and note_checkpoint() from the threads that train, one at a time;
/// note_device_outcome(), note_incident(), note_state(), checkpoint_before(), want() and what begins with take_ from the
/// worker's; all else from any.
class Governor {
 public:
  /// Overflows in a row that are a gradient scaler's own affair, as in collectors::StepBuilder.
  static constexpr int kTrustedOverflows = 16;

  /// `options` have been checked.
  explicit Governor(const Options& options);
  Governor(const Governor&) = delete;  // others hold its address
  Governor& operator=(const Governor&) = delete;

  /// Whether any policy does more than to watch. False: judge() is not worth a call.
  [[nodiscard]] bool acts() const noexcept { return acts_; }
  /// Whether steps with non-finite values are left out.
  [[nodiscard]] bool acts_on_nonfinite() const noexcept {
    return policy_.on_nonfinite() != NonfinitePolicy::watch;
  }
  /// Whether judge() needs StepFinding::norm, now or after a change.
  [[nodiscard]] bool needs_norm() const noexcept { return needs_norm_; }
  /// How a policy goes back.
  [[nodiscard]] const RollbackOptions& rollback_options() const noexcept {
    return rollback_options_;
  }
  /// Whether a rollback first waits for everything on each device.
  [[nodiscard]] bool rollback_device_sync() const noexcept { return rollback_device_sync_; }
  /// When snapshots are due.
  [[nodiscard]] const SnapshotPace& pace() const noexcept { return pace_; }
  /// Whether a snapshot taken now may become one to go back to, as far as is known.
  [[nodiscard]] bool may_snapshot() const noexcept {
    return is_state_good_.load(std::memory_order_relaxed) &&
           !(policy_.on_divergence() == DivergencePolicy::rollback &&
             may_diverge_.load(std::memory_order_relaxed));
  }

  /// Whether leave_to_device() may say so of any step.
  [[nodiscard]] bool may_leave_to_device() const noexcept { return leaves_to_device_; }
  /// Whether the optimizer is to leave out a bad step by itself, by what is found on the device: no host waits for
  /// that. Then the step's number among all; else 0. Not where a norm counts too, several processes must decide alike, or the
  /// step before was skipped: then the next one is judged in time. In a graph that is captured, it holds for all replays.
  [[nodiscard]] std::int64_t leave_to_device(int optimizer, bool in_graph) noexcept;
  /// What became of a step that was left to the device.
  /// @param number  as leave_to_device() gave it; 0: the step is a replay of a graph, behind all that were told before
  /// @param fault   none: it was taken
  void note_device_outcome(int optimizer, std::int64_t number, std::int64_t run_step,
                           Fault fault) noexcept;

  /// Decides about the step in hand. Allocates for an optimizer's first step, and where it decides
  /// for a rollback.
  [[nodiscard]] Decision judge(const StepFinding& step) noexcept;

  /// Whether steps are judged by what all ranks know: tell(), an exchange between them, and
  /// judge_together().
  [[nodiscard]] bool agrees() const noexcept { return lockstep_.is_on(); }
  /// What the other ranks are to know of the step in hand. Each call is one exchange, on every rank.
  [[nodiscard]] ranks::RankRecord tell(const StepFinding& step) noexcept;
  /// As judge(), by what all ranks have told, in their order: the same on each. If they are not in
  /// step, the agreement ends, and this rank decides alone. `name_of`: a parameter, by its order.
  [[nodiscard]] Decision judge_together(
      const StepFinding& step, std::span<const std::string> records,
      const std::function<std::string(std::int32_t)>& name_of) noexcept;
  /// Ranks cannot agree any more: each decides alone from now on, and the worker reports it.
  void lose_agreement(const std::string& why) noexcept;
  /// Run step of the snapshot that the latest decision is to go back to, on every rank; 0: they have
  /// none in common. Absent: ranks have not agreed, and the newest good one will do.
  [[nodiscard]] std::optional<std::int64_t> agreed_snapshot() const noexcept;

  /// A rollback has been carried out. One that a policy decided for gets its reason here, and
  /// counts for rollback_limit.
  void note_rollback(record::Rollback rollback, bool is_by_policy) noexcept;
  /// The first step that was bad, if the latest decision rests on a divergence: it is older than
  /// the decision. Snapshots of it and of later steps are of a training that had gone bad.
  [[nodiscard]] std::optional<std::int64_t> diverges_since() const noexcept;
  /// There is no snapshot for the rollback that it decided for: the run is to stop.
  void stop_instead() noexcept;
  /// The same where that is found out after the step: the next one is left out, whatever it is.
  void stop_at_next_step() noexcept;
  /// The program goes on although it was asked to stop.
  void resume() noexcept {
    latest_.store(Acted{});
    owes_stop_.store(false, std::memory_order_relaxed);
  }
  void count_snapshot(record::SnapshotResult result) noexcept;
  /// The good snapshots, the newest first: kGenerations of them at most.
  void set_snapshots(std::span<const record::KeptSnapshot> good) noexcept;
  /// Ranks have compared their weights, and there is news.
  void note_comparison(record::ReplicaComparison comparison) noexcept {
    comparisons_.put(std::move(comparison));
  }
  /// A line for the log, which the worker writes.
  void log(std::string line) noexcept { lines_.put(std::move(line)); }
  /// A checkpoint was written behind `run_step`.
  void note_checkpoint(std::int64_t run_step) noexcept { checkpoints_.note(run_step); }

  /// From the next step on this is to hold. It must be one that why_fixed() allows. If ranks agree, rank 0's counts.
  void want(const ranks::Policy& policy) noexcept { policy_.want(policy); }
  /// Rank 0's, if it has come to hold here since the last call.
  [[nodiscard]] std::optional<ranks::Policy> take_policy_of_ranks() noexcept {
    return policy_.take_of_ranks();
  }
  /// An incident opened, or was opened again. `is_new` false: more is known of one that is open.
  /// @param judged_at  when the step had ended that it was found by, as StepRecord::monotonic. Run steps would not tell: all
  ///                   optimizers' steps of an iteration have one number
  void note_incident(const record::Incident& incident, bool is_new,
                     double judged_at = std::numeric_limits<double>::infinity()) noexcept;
  /// `may_diverge`: the latest steps look like the beginning of a divergence.
  void note_state(std::optional<std::int64_t> last_good_step, bool is_good,
                  bool may_diverge) noexcept;
  /// Run step of the latest checkpoint that was written at `last_good_step` or before.
  [[nodiscard]] std::optional<std::int64_t> checkpoint_before(std::int64_t last_good_step) const {
    return checkpoints_.before(last_good_step);
  }
  /// Those since the last call, the oldest first.
  [[nodiscard]] std::vector<record::Rollback> take_rollbacks() { return new_rollbacks_.take(); }
  [[nodiscard]] std::vector<std::string> take_lines() { return lines_.take(); }
  /// Those since the last call, the oldest first.
  [[nodiscard]] std::vector<record::ReplicaComparison> take_comparisons() {
    return comparisons_.take();
  }
  /// Why ranks do not agree any more, once.
  [[nodiscard]] std::optional<std::string> take_lost_agreement();

  [[nodiscard]] bool should_stop() const noexcept { return latest_.load().stops != Stops::no; }
  /// Why it decided for the latest rollback or stop, one sentence. Empty: there was none, or the program went on.
  [[nodiscard]] std::string reason() const;
  /// The same as the end of a run has it: "stopped: ...". Empty: it does not stop.
  [[nodiscard]] std::string stop_reason() const;
  [[nodiscard]] GovernorStatus status() const;
  /// Absent: no snapshot was due and no rollback was made, nor will there be any by a policy, and ranks were never to
  /// agree.
  [[nodiscard]] std::optional<record::GovernorSummary> summary() const;

 private:
  enum class Stops : std::uint8_t { no, yes, without_snapshot, without_agreement };
  /// What the latest rollback or stop rests on; fault none: there was none.
  struct Acted {
    std::int32_t run_step = 0;  ///< as many bits of it as an atomic has room for
    Fault fault = Fault::none;
    bool is_escalated = false;
    Stops stops = Stops::no;
    record::IncidentClass kind = record::IncidentClass::nonfinite_loss;  ///< of an incident
  };

  /// The numbers and the incident behind the latest rollback or stop.
  struct Grounds {
    double norm = 0;
    double bound = 0;
    PendingIncident incident{};
  };

  static Stops stops_of(const Decision& decision) noexcept;
  Fault fault_of(const StepFinding& step) noexcept;
  Decision decide(const StepFinding& step, Fault fault);
  [[nodiscard]] Decision skipped_too_often(const SkipRows::Skip& last) noexcept;
  [[nodiscard]] Decision by_policy(Verdict wanted, Fault fault, bool is_escalated) noexcept;
  [[nodiscard]] bool may_roll_back() const noexcept;
  [[nodiscard]] record::RollbackReason rollback_reason() const noexcept;
  [[nodiscard]] Decision by_incident(const StepFinding& step) noexcept;
  [[nodiscard]] std::optional<PendingIncident> take_own_incident() noexcept;
  [[nodiscard]] std::optional<PendingIncident> take_agreed_incident() noexcept;
  [[nodiscard]] int& entry(std::vector<int>& counts, int optimizer);

  PolicyInForce policy_;
  const bool acts_;
  const bool needs_norm_;
  const int loss_in_a_row_;
  const SnapshotPace pace_;
  const int rollback_limit_;
  const int rollback_window_;
  const RollbackOptions rollback_options_;
  const bool rollback_device_sync_;
  const bool is_alone_;  ///< one process trains
  const bool leaves_to_device_;

  // The threads that train.
  std::int64_t judged_ = 0;
  std::vector<int> overflows_;          ///< in a row, by optimizer
  std::deque<std::int64_t> rollbacks_;  ///< steps judged when they were
  std::uint32_t seen_incidents_ = 0;
  PendingIncident acts_on_;  ///< what the decision in hand rests on, if that is an incident
  /// Of the latest rollback: when it was decided for, then when it happened; and its run step.
  double went_back_at_ = -std::numeric_limits<double>::infinity();
  std::int64_t went_back_behind_ = -1;
  Lockstep lockstep_;

  Checkpoints checkpoints_;
  Mailbox<record::Rollback> new_rollbacks_;
  Mailbox<std::string> lines_;
  Mailbox<record::ReplicaComparison> comparisons_;
  std::atomic<std::uint32_t> incidents_{0};  ///< that a policy is to act on
  std::atomic<bool> sees_devices_{false};    ///< some step was not judged in time
  std::atomic<Acted> latest_{Acted{}};
  std::atomic<bool> owes_stop_{false};  ///< to the next step
  std::atomic<std::int64_t> skipped_{0};
  std::atomic<std::int64_t> last_good_step_{0};
  std::atomic<bool> is_state_good_{true};
  std::atomic<bool> may_diverge_{false};

  SkipRows skips_;
  mutable std::mutex mutex_;   ///< guards what follows; held for moments only
  PendingIncident incident_;   ///< the latest one that a policy is to act on
  std::int64_t last_bad_ = 0;  ///< the latest run step that was bad when it opened
  double judged_at_ = 0;       ///< as note_incident() has it
  Grounds grounds_;
  std::optional<std::string> lost_agreement_;  ///< not reported yet
  record::GovernorSummary summary_;
  bool has_summary_ = false;
  double snapshots_set_ = 0;  ///< when their ages were those of summary_
};

}  // namespace gradvane::agent
