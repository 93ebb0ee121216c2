#pragma once
// The one worker thread: takes steps from the hand-off, builds their records, judges and exports
// them. It makes no CUDA call and shares no lock that the training thread could wait for.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "agent/governor/governor.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/outlets.hpp"
#include "agent/outlets/recordings.hpp"
#include "agent/outlets/user_callbacks.hpp"
#include "agent/process/process_watch.hpp"
#include "agent/public/config_file.hpp"
#include "agent/worker/ending.hpp"
#include "agent/worker/incidents.hpp"
#include "agent/worker/pauses.hpp"
#include "agent/worker/run_progress.hpp"
#include "agent/worker/run_status.hpp"
#include "agent/worker/scrape_wait.hpp"
#include "agent/worker/step_pipeline.hpp"
#include "agent/worker/sync_book.hpp"
#include "agent/worker/taken_signals.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::agent {

/// Owns the thread and the objects that it works with, and decides when each of them has its turn.
class Worker final : public ProcessMember {
 public:
  using Linger = agent::Linger;

  /// Starts the endpoint and the thread. Throws std::runtime_error where the endpoint cannot be
  /// had; nothing stays behind then. `exchange` may be null: sharded parameters have no norm over
  /// all processes then. So may `ledger`: host syncs are not counted then. `governor` outlives it.
  /// `config` is looked at about once a second; what may change then holds from the next step on.
  Worker(const Options& options, record::RunInfo run, collectors::Handoff& handoff,
         Governor& governor, collectors::NormExchange* exchange = nullptr,
         collectors::SyncLedger* ledger = nullptr, ConfigFile config = {});
  ~Worker() override;
  Worker(const Worker&) = delete;  // its thread holds its address
  Worker& operator=(const Worker&) = delete;

  /// Exports what is left and ends the run as `state`; does not wait. The first call decides. With
  /// Linger::yes the end waits for one more scrape: only where the process ends too. No effect on
  /// the worker's own thread or in a forked child.
  void begin_end(record::RunState state, std::string_view reason, Linger linger) noexcept;
  /// Joins the thread. Takes up to kEndBudget, or longer if the end lingers; Ctrl-C ends the wait.
  /// A thread that is stuck beyond that, in a file for example, is left behind. To be called after
  /// begin_end().
  void await_end() noexcept override;
  /// Both, after which the fate of the process is no concern of this worker.
  void end(record::RunState state, std::string_view reason, Linger linger) noexcept;
  /// True if the thread was left behind: then nothing that it uses may be destroyed, this object
  /// included.
  [[nodiscard]] bool is_left_behind() const noexcept { return is_left_behind_.load(); }
  bool flush(std::chrono::milliseconds timeout) noexcept;

  [[nodiscard]] Status status() const { return status_.status(); }
  [[nodiscard]] const std::string& url() const noexcept { return outlets_.endpoint().url(); }
  /// True in the child of a fork: then there is no thread, and nothing here may be used or
  /// destroyed.
  [[nodiscard]] bool is_child() const noexcept { return is_child_.load(std::memory_order_relaxed); }
  /// A watched step has named the first module that went bad. Any thread.
  void trace_found(record::TracedModule module) noexcept;
  /// Evaluations and checkpoints stop the stall clock. Any thread.
  [[nodiscard]] Pauses& pauses() noexcept { return pauses_; }
  void add_collectable(std::weak_ptr<prometheus::Collectable> collectable);

  void process_ends(bool failed, std::string_view reason) noexcept override;
  void in_forked_child() noexcept override;

 private:
  void start_thread();
  void run() noexcept;
  [[nodiscard]] std::chrono::microseconds poll_pause(int idle_polls) const;
  void look_around();
  void look_at_config();
  void take(const ConfigChange& change);
  void count_own_time();
  void export_governor();
  void wind_up(const Ending& ending) noexcept;
  void linger(const Ending& ending) noexcept;
  [[nodiscard]] bool is_elsewhere() const noexcept;
  void leave_thread_behind() noexcept;

  collectors::Handoff& handoff_;
  Governor& governor_;
  UserCallbacks callbacks_;
  Outlets outlets_;
  TakenSignals signals_;
  RunProgress progress_;
  Pauses pauses_;
  RunStatus status_;
  Recordings recordings_;
  Incidents incidents_;
  SyncBook syncs_;
  StepPipeline steps_;
  ScrapeWait scrape_wait_;

  // The worker's own.
  ConfigFile config_;
  std::chrono::steady_clock::time_point last_look_;
  double cpu_seconds_ = 0;

  std::mutex join_mutex_;  ///< one thread joins
  std::atomic<bool> is_left_behind_{false};
  std::atomic<bool> is_child_{false};
  std::jthread thread_;  ///< last: started when all else is built, joined before anything goes
};

}  // namespace gradvane::agent
