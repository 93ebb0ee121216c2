#pragma once
// The sync ledger of this process: counts every call that makes a CPU thread wait for the GPU, and knows who
// asked. One for the process, since CUPTI has one place for somebody who listens; it is never destroyed,
// since a callback may be in it at any time.
#include <cstdint>
#include <string>
#include <vector>

#include "collectors/sync_ledger/sync_mark.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::collectors {

/// What to do about PyTorch's profiler, which wants CUPTI's one subscription at its first use, and shows no
/// GPU events for the rest of the process where it is taken. One that was told by KINETO_USE_DAEMON, before the
/// process began, not to ask, is left alone whatever the rule.
enum class ProfilerRule : std::uint8_t {
  keep,   ///< keep the subscription
  yield,  ///< give it up while the profiler runs
  share,  ///< CUPTI's own sharing, from 13.3 on: every tool of the process must know of it. Before: yield
};
/// Whether KINETO_USE_DAEMON is set in the environment.
[[nodiscard]] bool profiler_is_told_not_to_ask() noexcept;

struct LedgerWish {
  bool is_default = false;   ///< what the next one wishes counts instead
  bool at_once = false;      ///< subscribe although the process has not loaded the driver yet
  bool is_required = false;  ///< subscribe beside Triton's Proton too, which cannot start then
  std::string library = {};  ///< path of a libcupti; empty: the one that is there
  ProfilerRule profiler = ProfilerRule::keep;
  std::int64_t threshold = 50'000;  ///< nanoseconds from which what only may block counts
};

class SyncLedger {
 public:
  // Set-up, and the thread that trains. None of these throws --------------------------------------------

  /// Somebody wants counts from now on; leave() for each. Subscribes if CUDA is in the process.
  virtual void join(const LedgerWish& wish) noexcept = 0;
  virtual void leave() noexcept = 0;
  /// The driver is being set up, on this thread: subscribes unless that would have to wait for anybody.
  virtual void driver_comes() noexcept = 0;
  /// A step ended. Also the moment at which a subscription is (again) asked for, if one is due.
  virtual SyncMark end_step() noexcept = 0;
  virtual void set_phase(std::uint8_t phase) noexcept = 0;  ///< kNoPhase: none
  /// Frames of files below it are passed over.
  virtual void pass_over(const std::string& directory) noexcept = 0;
  /// More than 0 in all: what the training's threads do now belongs to no step.
  virtual void outside_steps(int delta) noexcept = 0;
  /// Before a profiler of `name` (that lives as long as the process) takes CUPTI's subscription, and when it
  /// is done: the rule about it is followed.
  virtual void profiler_begins(const char* name) noexcept = 0;
  virtual void profiler_ended() noexcept = 0;
  /// The interpreter or the process is about to end: gives the subscription up, for good. What was counted
  /// stays. Waits for a second or two at most. Any thread.
  virtual void end() noexcept = 0;

  // Any thread, for itself ------------------------------------------------------------------------------

  /// Calls are Gradvane's own while the sum of `delta`s is positive.
  virtual void own(int delta) noexcept = 0;
  /// Names what the thread does; returns the name before. It must live as long as the process.
  virtual const char* set_scope(const char* name) noexcept = 0;

  // The worker ------------------------------------------------------------------------------------------

  /// About once a second: whether it is time to ask for the subscription again. Where no thread of the program
  /// calls end_step(), the caller itself may ask, and looks whether it is still there.
  virtual void look(bool may_subscribe = false) noexcept = 0;
  /// Takes what threads have written since, before it is overwritten. Often, and cheap.
  virtual void collect() noexcept = 0;
  /// The syncs of a step between two marks. False where not every moment between them was counted.
  virtual bool step(const SyncMark& begin, const SyncMark& end, record::StepSyncs& syncs) = 0;
  virtual std::vector<record::StepSyncSite> sites_of_step(const SyncMark& begin,
                                                          const SyncMark& end,
                                                          record::SyncOrigin origin) = 0;
  /// All but what budgets make of it.
  virtual record::SyncSummary summary() = 0;

 protected:
  ~SyncLedger() = default;
};

/// The one ledger of this process: that of an injected library, where there is one of this very version.
[[nodiscard]] SyncLedger& process_ledger() noexcept;
/// end() of it, if there is one by now.
void end_process_ledger() noexcept;
/// Whether the driver has loaded an injected library into this process.
[[nodiscard]] bool has_injected_library() noexcept;
/// Whether it belongs to an injected library.
[[nodiscard]] bool ledger_is_shared() noexcept;

/// While it lives, this thread's CUDA calls are booked as Gradvane's own. Null: nobody counts.
class OwnCalls {
 public:
  explicit OwnCalls(SyncLedger* ledger) : ledger_(ledger) {
    if (ledger_ != nullptr) ledger_->own(1);
  }
  ~OwnCalls() {
    if (ledger_ != nullptr) ledger_->own(-1);
  }
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;

 private:
  SyncLedger* ledger_;
};

}  // namespace gradvane::collectors
