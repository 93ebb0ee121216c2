#pragma once
// One run: the recorder of the training thread and the worker, with one rule for when they are
// alive. Both faces of the agent, C++ and Python, are made of it.
#include <memory>
#include <string>
#include <string_view>

#include "agent/governor/governor.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/ledger_seat.hpp"
#include "agent/public/options.hpp"
#include "agent/step/step_recorder.hpp"
#include "agent/worker/worker.hpp"
#include "collectors/steps/norm_exchange.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::agent {

/// For the training thread, except url(), run() and status(), which any thread may call.
class Session {
 public:
  /// Starts the worker and the endpoint, unless switched off. Throws.
  explicit Session(const ResolvedOptions& resolved);
  ~Session();
  Session(const Session&) = delete;  // the worker reads from the recorder
  Session& operator=(const Session&) = delete;

  /// False in a forked child, after the end and where switched off: then only clipping works.
  [[nodiscard]] bool live() noexcept;
  /// Ends the run and waits for it, as Worker::end() does. The first call decides.
  void end(record::RunState state, std::string_view reason, Worker::Linger linger) noexcept;
  /// end() in three parts, for a caller that must not hold its lock during the wait. begin_end()
  /// returns false if there is nothing to wait for.
  [[nodiscard]] bool begin_end(record::RunState state, std::string_view reason,
                               Worker::Linger linger) noexcept;
  void await_end() noexcept;
  void leave() noexcept;
  /// Call it before the destructor. Ends the run, as failed if an exception is leaving the scope.
  /// Returns false if a thread still uses this, here or in the parent of a fork: then it must be
  /// leaked with all that it is part of.
  [[nodiscard]] bool close(Worker::Linger linger) noexcept;

  [[nodiscard]] StepRecorder& recorder() noexcept { return recorder_; }
  [[nodiscard]] collectors::NormExchange& exchange() noexcept { return exchange_; }
  [[nodiscard]] Governor& governor() noexcept { return governor_; }
  [[nodiscard]] const Governor& governor() const noexcept { return governor_; }
  /// Null: host syncs are not counted.
  [[nodiscard]] collectors::SyncLedger* ledger() const noexcept { return seat_.ledger(); }
  [[nodiscard]] LedgerSeat& seat() noexcept { return seat_; }
  /// Precondition: live().
  [[nodiscard]] Worker& worker() noexcept { return *worker_; }

  /// +1 where an evaluation or a checkpoint begins, -1 where it ends: host syncs belong to no step, and the stall
  /// clock stands still. Precondition: live().
  void outside_steps(int delta) noexcept;

  /// The loop enters `phase`: host syncs from now on belong to it. Returns what leave_phase() needs. Its time is
  /// for the caller to add. Precondition: live().
  int enter_phase(Phase phase) noexcept;
  void leave_phase(Phase phase, int before) noexcept;

  /// Ends the step of `optimizer`. What handing it over costs counts in the next step, since the
  /// times of this one are handed over.
  std::optional<StepResult> finish(int optimizer,
                                   record::SkipReason skipped = record::SkipReason::none,
                                   bool is_taken_here = true) noexcept;

  [[nodiscard]] std::string url() const;
  /// What the run is called; empty if switched off.
  [[nodiscard]] const std::string& run() const noexcept { return run_; }
  /// A live run has the default name, so this one has its run_id behind it.
  [[nodiscard]] bool is_renamed() const noexcept { return is_renamed_; }
  /// Of this process among those of its machine, by the launcher or the option.
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] Status status() const;

 private:
  LedgerSeat seat_;
  Governor governor_;
  StepRecorder recorder_;
  collectors::NormExchange exchange_;
  int exceptions_;
  bool has_ended_ = false;
  std::string run_;
  bool is_renamed_ = false;
  int local_rank_ = 0;
  /// Null when switched off; after the recorder, which it reads from.
  std::unique_ptr<Worker> worker_;
};

}  // namespace gradvane::agent
