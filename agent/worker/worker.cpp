#include "agent/worker/worker.hpp"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/process/process_signals.hpp"
#include "agent/public/detector_settings.hpp"
#include "agent/ranks/policy.hpp"
#include "exporters/signals_blocked.hpp"
#include "record/clocks.hpp"

namespace gradvane::agent {
namespace {

using namespace std::chrono_literals;
using record::RunState;

// Short enough that a step is exported at once for a person; the idle one costs next to nothing.
constexpr std::chrono::microseconds kPollBusy = 2ms;
constexpr std::chrono::microseconds kPollIdle = 20ms;
constexpr int kIdleAfter = 100;  ///< polls without a step
constexpr auto kLookEvery = 1s;
constexpr auto kExportBudget = 1s;

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Worker::Worker(const Options& options, record::RunInfo run, collectors::Handoff& handoff,
               Governor& governor, collectors::NormExchange* exchange,
               collectors::SyncLedger* ledger, ConfigFile config)
    : handoff_(handoff),
      governor_(governor),
      callbacks_(options),
      outlets_(options, run, callbacks_),
      signals_(options.handle_sigterm,
               outlets_.recorder() != nullptr ? options.recorder_signal : RecorderSignal::none),
      pauses_(options.stall_pause_seconds),
      status_(outlets_, options.stall_seconds, pauses_),
      recordings_(outlets_.recorder(), callbacks_, recording_requests()),
      incidents_(options, run.rank, handoff, outlets_, recordings_, callbacks_, governor),
      syncs_(ledger, options.sync_report, std::move(run),
             {incidents_.detectors(), outlets_.exporters(), callbacks_}),
      steps_(options, handoff, exchange,
             {outlets_, syncs_, incidents_, status_, progress_, callbacks_}),
      scrape_wait_(options, outlets_.endpoint(), incidents_, progress_, callbacks_),
      config_(std::move(config)),
      last_look_(std::chrono::steady_clock::now()) {
  join_process_watch(*this);
  start_thread();
}

Worker::~Worker() { end(RunState::finished, "", Linger::no); }

void Worker::start_thread() {
  try {
    signals_.take(callbacks_);
    const exporters::SignalsBlocked for_the_thread_to_inherit;
    thread_ = std::jthread([this] { run(); });
  } catch (...) {
    signals_.give_back();
    leave_process_watch(*this);
    throw;
  }
  ::pthread_setname_np(thread_.native_handle(), "gradvane");
}

void Worker::run() noexcept {
  outlets_.directories().remove_old_rings();  // on this thread: it looks at the disk
  int idle = 0;
  for (;;) {
    std::optional<Ending> ending = progress_.await_request(poll_pause(idle));
    if (!ending) ending = signals_.ending();
    if (ending) handoff_.hurry();
    try {
      steps_.announce_model();
      idle = steps_.drain() ? 0 : idle + 1;
      incidents_.judge_traced();
      incidents_.judge_rollbacks(false);
      incidents_.judge_agreement();
      recordings_.write_on_request(recording_requests());
      if (ending) steps_.settle();
      look_around();
    } catch (...) {  // no memory for a step: the next one may fit
      outlets_.metrics().add(record::Metric::records_dropped_total, 1, {"ring_overrun"});
    }
    if (!ending) continue;
    wind_up(*ending);
    return;
  }
}

/// A few times a step: on a machine whose every core trains, each look costs the others a moment.
std::chrono::microseconds Worker::poll_pause(int idle_polls) const {
  if (idle_polls >= kIdleAfter) return kPollIdle;
  const std::chrono::duration<double> quarter(status_.mean_step_seconds() / 4);
  return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(quarter), kPollBusy,
                    kPollIdle);
}

void Worker::look_around() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_look_ < kLookEvery) return;
  last_look_ = now;
  count_own_time();
  look_at_config();
  outlets_.look();
  steps_.count_failures();
  incidents_.show_open();
  syncs_.look();
  export_governor();
  if (status_.state() == RunState::running || status_.state() == RunState::stalled)
    incidents_.judge_time(status_.paused_seconds(now));
  status_.look(now);
}

void Worker::look_at_config() {
  if (const auto change = config_.look(record::unix_time())) {
    take(*change);
    if (change->has_changed) governor_.want(ranks::policy_of(change->options));
  }
  if (const auto policy = governor_.take_policy_of_ranks())
    take(config_.follow(*policy, record::unix_time()));
}

void Worker::take(const ConfigChange& change) {
  for (const std::string& line : change.lines) callbacks_.log(line);
  if (!change.has_changed) return;
  const Options& options = change.options;
  incidents_.change(detector_settings(options));
  status_.set_stall_seconds(options.stall_seconds);
  pauses_.set_longest(options.stall_pause_seconds);
  handoff_.set_weight_every(options.weight_every);
  (void)outlets_.exporters().export_settings(change.settings);
}

void Worker::export_governor() {
  for (const std::string& line : governor_.take_lines()) callbacks_.log(line);
  if (const auto summary = governor_.summary())
    (void)outlets_.exporters().export_governor(*summary);
}

void Worker::count_own_time() {
  const double cpu = thread_cpu_seconds();
  outlets_.metrics().add(record::Metric::agent_seconds_total, cpu - cpu_seconds_, {"worker"});
  cpu_seconds_ = cpu;
}

void Worker::wind_up(const Ending& ending) noexcept {
  try {
    status_.set_state(ending.state,
                      ending.reason.empty() ? status_.device_failure() : ending.reason);
    incidents_.judge_rollbacks(true);
    incidents_.judge_agreement();
    incidents_.export_open();
    export_governor();
  } catch (...) {  // no memory for it: the end itself matters more
  }
  progress_.note_last_round();
  syncs_.report();
  recordings_.write_at_the_end(ending.state == RunState::failed, incidents_.has_open());
  // Until it dies the program trains on.
  if (ending.is_by_signal) linger(ending);
  (void)outlets_.exporters().finish(std::chrono::milliseconds(kExportBudget));
  if (!ending.is_by_signal) linger(ending);
  outlets_.endpoint().stop(CtrlC::was_pressed() ? kCutBudget : kAnswerBudget);
  outlets_.directories().release();
  signals_.give_back();  // before detach() returns
  progress_.note_end();
}

void Worker::linger(const Ending& ending) noexcept {
  scrape_wait_.wait(ending, [this] { steps_.drain_late(); });
}

/// On another thread than the worker's, in the process that has it.
bool Worker::is_elsewhere() const noexcept {
  return !is_child() && std::this_thread::get_id() != thread_.get_id();
}

void Worker::begin_end(RunState state, std::string_view reason, Linger linger) noexcept {
  if (is_elsewhere()) progress_.request_end(state, reason, linger);
}

void Worker::await_end() noexcept {
  if (!is_elsewhere()) return;
  const std::lock_guard one_at_a_time(join_mutex_);
  if (!thread_.joinable()) return;
  if (progress_.await_end())
    thread_.join();
  else
    leave_thread_behind();
}

void Worker::end(RunState state, std::string_view reason, Linger linger) noexcept {
  begin_end(state, reason, linger);
  await_end();
  if (!is_child()) leave_process_watch(*this);
}

/// It waits for a file or for a callback, which we cannot hurry.
void Worker::leave_thread_behind() noexcept {
  is_left_behind_ = true;
  callbacks_.stop();
  thread_.detach();
  outlets_.endpoint().stop(kCutBudget);
  signals_.give_back();
}

bool Worker::flush(std::chrono::milliseconds timeout) noexcept {
  if (!is_elsewhere()) return false;  // in a callback it would wait for itself
  handoff_.hurry();
  return progress_.await_exported(handoff_.steps_published(), timeout);
}

void Worker::trace_found(record::TracedModule module) noexcept {
  if (!is_child()) incidents_.trace_found(std::move(module));
}

void Worker::add_collectable(std::weak_ptr<prometheus::Collectable> collectable) {
  outlets_.metrics().add_collectable(std::move(collectable));
}

void Worker::process_ends(bool failed, std::string_view reason) noexcept {
  begin_end(failed ? RunState::failed : RunState::finished, reason, Linger::yes);
}

void Worker::in_forked_child() noexcept {
  is_child_.store(true, std::memory_order_relaxed);
  outlets_.endpoint().close_in_child();
}

}  // namespace gradvane::agent
