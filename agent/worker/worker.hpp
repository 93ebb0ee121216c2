#pragma once
// The one worker thread: takes steps from the hand-off, builds their records, judges and exports them.
// It makes no CUDA call and shares no lock that the training thread could wait for.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/worker/incident_lines.hpp"
#include "agent/worker/process_watch.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/steps/held_records.hpp"
#include "collectors/steps/slot_gatherer.hpp"
#include "collectors/steps/step_builder.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"
#include "detectors/judge.hpp"
#include "exporters/alert_push/alert_push.hpp"
#include "exporters/api/endpoint.hpp"
#include "exporters/api/endpoint_file.hpp"
#include "exporters/board/status_board.hpp"
#include "exporters/exporter_set.hpp"
#include "exporters/files/run_directory.hpp"
#include "exporters/history/run_history.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/recorder/flight_recorder.hpp"

namespace gradvane::agent {

class Worker final : public ProcessMember {
 public:
  /// Starts the endpoint and the thread. Throws std::runtime_error where the endpoint cannot be had.
  /// `exchange` may be null: sharded parameters have no norm over all processes then.
  /// So may `ledger`: host syncs are not counted then.
  Worker(const Options& options, record::RunInfo run, collectors::Handoff& handoff,
         collectors::NormExchange* exchange = nullptr, collectors::SyncLedger* ledger = nullptr);
  ~Worker() override;
  Worker(const Worker&) = delete;  // its thread holds its address
  Worker& operator=(const Worker&) = delete;

  /// Whether the end of the run waits for one more scrape: only where the process ends too.
  enum class Linger : std::uint8_t { no, yes };
  /// Exports what is left and ends the run as `state`; does not wait. The first call decides. No effect on the
  /// worker's own thread or in a forked child.
  void begin_end(record::RunState state, std::string_view reason, Linger linger) noexcept;
  /// Joins the thread. Takes up to kEndBudget, or longer if the end lingers; Ctrl-C ends the wait. A thread
  /// that is stuck beyond that, in a file for example, is left behind. To be called after begin_end().
  void await_end() noexcept override;
  /// Both, after which the fate of the process is no concern of this worker.
  void end(record::RunState state, std::string_view reason, Linger linger) noexcept;
  /// True if the thread was left behind: then nothing that it uses may be destroyed, this object included.
  [[nodiscard]] bool is_left_behind() const noexcept { return is_left_behind_.load(); }
  bool flush(std::chrono::milliseconds timeout) noexcept;

  [[nodiscard]] Status status() const;
  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  /// True in the child of a fork: then there is no thread, and nothing here may be used or destroyed.
  [[nodiscard]] bool is_child() const noexcept { return is_child_.load(std::memory_order_relaxed); }
  /// A watched step has named the first module that went bad. Any thread.
  void trace_found(record::TracedModule module) noexcept;
  void add_collectable(std::weak_ptr<prometheus::Collectable> collectable);

  void process_ends(bool failed, std::string_view reason) noexcept override;
  void in_forked_child() noexcept override;

 private:
  struct Ending {
    record::RunState state = record::RunState::finished;
    std::string reason = {};
    Linger linger = Linger::no;
    bool is_by_signal = false;
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  };

  void claim_run_directory();
  [[nodiscard]] std::string run_directory_text() const;
  void start_exporters();
  void start_recorder();
  void start_alerts();
  void start_endpoint();
  void remove_old_rings() noexcept;
  void start_thread();
  void run() noexcept;
  [[nodiscard]] std::chrono::microseconds poll_pause() const;
  void announce_model();
  bool drain();
  void settle();
  void take_facts();
  bool export_ready(bool all);
  bool export_replays(collectors::SlotGatherer::Look look);
  void export_step(const collectors::StepFacts& facts, const collectors::StepSlots& slots,
                   std::uint64_t lost);
  bool export_held(bool all);
  void export_record(const record::StepRecord& record, const record::StepDetail& detail,
                     const std::shared_ptr<const record::ModelInfo>& model);
  void count_lost_reads(std::int64_t reads);
  void note_device_failure();
  void look_around();
  void judge_traced();
  void record_on_request();
  void note_alert_error();
  void show_open_incidents();
  [[nodiscard]] static std::optional<Ending> ending_by_signal();
  void take_late_steps() noexcept;
  void record_at_the_end(const Ending& ending) noexcept;
  void count_syncs(const collectors::StepFacts& facts, record::StepRecord& record);
  void report_syncs() noexcept;
  void report(const record::Incident& incident);
  void set_state(record::RunState state, std::string_view reason);
  void note_status(const record::StepRecord& record);
  void wind_up(const Ending& ending) noexcept;
  [[nodiscard]] std::chrono::duration<double> patience(record::RunState state) const;
  void linger(const Ending& ending) noexcept;
  void stop_endpoint(std::chrono::milliseconds budget) noexcept;
  void take_signals();
  void give_signals_back() noexcept;
  [[nodiscard]] bool has_ended_within(std::chrono::milliseconds time);
  [[nodiscard]] bool await_thread();
  void leave_thread_behind() noexcept;
  void tell(const record::Incident& incident) noexcept;
  void say_where_recorded() noexcept;
  void say(const std::string& line) noexcept;

  Options options_;
  record::RunInfo run_;
  collectors::Handoff& handoff_;
  std::string url_;

  std::shared_ptr<exporters::MetricSet> metrics_;
  std::shared_ptr<exporters::StatusBoard> board_;
  std::shared_ptr<exporters::RunHistory> history_;  ///< fed where there is an endpoint to show it
  std::shared_ptr<exporters::recording::FlightRecorder> recorder_;  ///< null: none
  std::shared_ptr<exporters::AlertPush> alerts_;                    ///< null: none
  exporters::ExporterSet exporters_;
  std::unique_ptr<exporters::Endpoint> endpoint_;
  std::shared_ptr<exporters::RunDirectory> run_directory_;         ///< null: no file goes there
  std::shared_ptr<exporters::RunDirectory> recordings_directory_;  ///< null: that of the run
  std::optional<exporters::EndpointFile> endpoint_file_;
  collectors::StepBuilder builder_;
  detectors::Judge judge_;
  collectors::SyncLedger* ledger_;
  record::SyncSummary syncs_before_;  ///< of an earlier run in this process

  // The worker's own.
  std::shared_ptr<const record::ModelInfo> model_;
  record::RunState state_ = record::RunState::starting;
  std::chrono::steady_clock::time_point last_step_;
  std::chrono::steady_clock::time_point last_look_;
  std::chrono::steady_clock::time_point last_memory_;
  double cpu_seconds_ = 0;
  double step_seconds_ema_ = 0;
  /// A step whose devices are still at it.
  struct Pending {
    collectors::StepFacts facts;
    std::uint64_t lost = 0;   ///< steps overwritten before it
    std::uint64_t taken = 0;  ///< steps taken from the hand-off, this one included
  };
  std::deque<Pending> pending_;
  bool has_said_lost_ = false;
  collectors::SlotGatherer gatherer_;
  collectors::HeldRecords held_;
  std::map<std::int32_t, std::int64_t> last_steps_;  ///< exported, by optimizer
  std::string device_failure_;
  std::string sync_report_error_;  ///< said already
  bool is_blind_ = false;          ///< said already: host syncs are counted no more
  std::string alert_error_;        ///< said already
  int recording_requests_ = 0;     ///< answered
  IncidentLines lines_;
  std::filesystem::path told_recording_;
  std::set<std::int64_t> open_incidents_;
  std::optional<std::chrono::steady_clock::time_point> last_opened_;  ///< an incident

  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  Status status_;
  std::optional<Ending> ending_;
  std::uint64_t steps_exported_ = 0;
  std::vector<record::TracedModule> traced_;  ///< not judged yet
  bool has_ended_ = false;
  std::chrono::steady_clock::time_point end_by_;  ///< then the thread is left behind

  std::mutex join_mutex_;     ///< one thread joins
  std::vector<int> signals_;  ///< taken before the thread starts
  std::atomic<bool> has_signals_{false};
  std::atomic<bool> has_open_endpoint_{false};
  std::atomic<bool> is_left_behind_{false};
  std::atomic<bool> is_child_{false};
  std::jthread thread_;  ///< last: started when all else is built, joined before anything goes
};

}  // namespace gradvane::agent
