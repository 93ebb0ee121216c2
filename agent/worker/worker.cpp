#include "agent/worker/worker.hpp"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "agent/public/detector_settings.hpp"
#include "agent/public/step_result.hpp"
#include "agent/worker/process_signals.hpp"
#include "collectors/process_memory.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "exporters/text/text_escape.hpp"
#include "record/clocks.hpp"
#include "record/names.hpp"

namespace gradvane::agent {
namespace {

using namespace std::chrono_literals;
using record::RunState;

// Short enough that a step is exported at once for a person; the idle one costs next to nothing.
constexpr std::chrono::microseconds kPollBusy = 2ms;
constexpr std::chrono::microseconds kPollIdle = 20ms;
constexpr int kIdleAfter = 100;  ///< polls without a step
constexpr auto kLookEvery = 1s;
constexpr auto kDeviceBudget = 2s;  ///< for what is still in flight at the end

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Worker::Worker(const Options& options, record::RunInfo run, collectors::Handoff& handoff,
               collectors::NormExchange* exchange, collectors::SyncLedger* ledger)
    : options_(options),
      run_(std::move(run)),
      handoff_(handoff),
      metrics_(std::make_shared<exporters::MetricSet>(
          run_, exporters::MetricSetOptions{static_cast<std::size_t>(options.max_series)})),
      board_(std::make_shared<exporters::StatusBoard>(
          static_cast<std::size_t>(options.history_steps))),
      history_(std::make_shared<exporters::RunHistory>()),
      exporters_(metrics_),
      builder_({options.vanishing_threshold, options.exploding_threshold}),
      judge_(run_.rank, detector_settings(options),
             [this](const record::Incident& incident) { report(incident); }),
      ledger_(ledger),
      last_step_(std::chrono::steady_clock::now()),
      last_look_(last_step_),
      gatherer_(handoff),
      held_(exchange) {
  exporters_.add(std::make_shared<exporters::PrometheusExporter>(metrics_));
  exporters_.add(board_);
  if (options_.port >= 0) exporters_.add(history_);
  if (ledger_ != nullptr) syncs_before_ = ledger_->summary();
  try {
    start_exporters();
    status_.state = name_of(RunState::starting);
    if (options_.port >= 0) start_endpoint();
    join_process_watch(*this);
    start_thread();
  } catch (...) {
    // A set-up that fails leaves no files: the ring on disk is for runs that are killed.
    (void)exporters_.set_run_state(RunState::finished, "");
    (void)exporters_.finish(std::chrono::milliseconds(0));
    throw;
  }
}

Worker::~Worker() { end(RunState::finished, "", Linger::no); }

void Worker::run() noexcept {
  remove_old_rings();
  int idle = 0;
  for (;;) {
    std::optional<Ending> ending;
    {
      std::unique_lock lock(mutex_);
      const auto pause = idle < kIdleAfter ? poll_pause() : kPollIdle;
      changed_.wait_for(lock, pause, [this] { return ending_.has_value(); });
      ending = ending_;
    }
    if (!ending && options_.handle_sigterm) ending = ending_by_signal();
    try {
      announce_model();
      idle = drain() ? 0 : idle + 1;
      judge_traced();
      record_on_request();
      if (ending) settle();
      look_around();
    } catch (...) {  // no memory for a step: the next one may fit
      metrics_->add(record::Metric::records_dropped_total, 1, {"ring_overrun"});
    }
    if (!ending) continue;
    wind_up(*ending);
    return;
  }
}

/// Who types Ctrl-C waits for the end; who sends SIGTERM has a patience of its own.
std::optional<Worker::Ending> Worker::ending_by_signal() {
  switch (ending_signal()) {
    case SIGTERM:
      return Ending{RunState::failed, "SIGTERM", Linger::yes, /*is_by_signal=*/true};
    case SIGINT:
      return Ending{RunState::failed, "interrupted (SIGINT)", Linger::no, /*is_by_signal=*/true};
    default:
      return std::nullopt;
  }
}

/// A few times a step: on a machine whose every core trains, each look costs the others a moment.
std::chrono::microseconds Worker::poll_pause() const {
  const std::chrono::duration<double> quarter(step_seconds_ema_ / 4);
  return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(quarter), kPollBusy,
                    kPollIdle);
}

/// Before the first step, so that the counters of its groups stand at 0 when a scrape first sees them.
void Worker::announce_model() {
  if (state_ != RunState::starting) return;
  const auto newest = handoff_.newest_model();
  if (newest == nullptr || newest == model_) return;
  model_ = newest;
  (void)exporters_.set_model(model_);
}

bool Worker::drain() {
  if (ledger_ != nullptr) ledger_->collect();
  take_facts();
  note_device_failure();
  bool found = export_ready(!device_failure_.empty());
  found |= export_held(false);
  if (pending_.empty() && held_.empty()) {
    found |= export_replays(collectors::SlotGatherer::Look::further);
    const std::lock_guard lock(mutex_);
    steps_exported_ = handoff_.steps_taken();
    changed_.notify_all();
  }
  return found || !pending_.empty() || !held_.empty();
}

/// The last steps of a run: their devices get a while to finish them.
void Worker::settle() {
  const auto until = std::chrono::steady_clock::now() + kDeviceBudget;
  while ((!pending_.empty() || !held_.empty()) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
    (void)drain();
  }
  (void)export_ready(true);
  (void)export_held(true);
}

void Worker::take_facts() {
  collectors::StepFacts facts;
  for (;;) {
    const collectors::Handoff::NextFacts next = handoff_.next(facts);
    if (!next.found) return;
    if (facts.captured) {
      gatherer_.note_captured(facts);
    } else {
      pending_.push_back({facts, next.lost, handoff_.steps_taken()});
    }
  }
}

/// Exports the steps whose slots have arrived, in order; with `all`, the others too, with what there is.
bool Worker::export_ready(bool all) {
  bool found = false;
  while (!pending_.empty() && (gatherer_.ready(pending_.front().facts) || all)) {
    (void)export_replays(collectors::SlotGatherer::Look::behind);  // they came before it
    Pending step = pending_.front();
    pending_.pop_front();
    // A graph may have taken steps that the training thread did not count.
    std::int64_t& last = last_steps_[step.facts.optimizer];
    step.facts.step = std::max(step.facts.step, last + 1);
    if (!step.facts.superseded) last = step.facts.step;
    export_step(step.facts, gatherer_.take(step.facts), step.lost);
    found = true;
    if (!held_.empty()) continue;
    const std::lock_guard lock(mutex_);
    steps_exported_ = step.taken;
    changed_.notify_all();
  }
  return found;
}

/// Steps that no hook saw: a graph took them.
bool Worker::export_replays(collectors::SlotGatherer::Look look) {
  bool found = false;
  while (auto facts = gatherer_.next_replay(look)) {
    std::int64_t& last = last_steps_[facts->optimizer];
    const std::int64_t captured = facts->step;
    facts->step = last = last == 0 ? captured : last + 1;
    facts->run_step += facts->step - captured;  // which goes on from other trainings before it
    facts->time = record::unix_time();
    facts->monotonic = record::monotonic_time();
    facts->step_seconds = collectors::kNotMeasured;
    facts->forget_syncs();
    export_step(*facts, gatherer_.take_replay(), 0);
    found = true;
  }
  return found;
}

void Worker::note_device_failure() {
  if (!device_failure_.empty()) return;
  device_failure_ = handoff_.device_failure();
  if (device_failure_.empty()) return;
  say(device_failure_ + "; its tensors are no longer read");
  set_state(state_, device_failure_);
}

void Worker::export_step(const collectors::StepFacts& facts, const collectors::StepSlots& slots,
                         std::uint64_t lost) {
  record::StepRecord record = builder_.build(facts, slots, gatherer_.totals());
  record.dropped_before = static_cast<std::int64_t>(lost);
  const std::int64_t lost_reads = gatherer_.take_lost_reads();
  if (facts.superseded && !record.first_nonfinite) return;  // read once more since, or not needed
  if (lost_reads > 0) count_lost_reads(lost_reads);
  count_syncs(facts, record);
  const auto model = builder_.model() != nullptr ? builder_.model() : model_;
  // A run that ends by a signal stays ended, whatever is still trained.
  if (state_ == RunState::starting || state_ == RunState::stalled)
    set_state(RunState::running, device_failure_);
  last_step_ = std::chrono::steady_clock::now();
  if (facts.refused_names > 0)
    metrics_->add(record::Metric::records_dropped_total, facts.refused_names,
                  {"user_metric_limit"});
  if (last_step_ - last_memory_ >= kLookEvery) {
    last_memory_ = last_step_;
    record.process_resident_bytes = collectors::resident_bytes();
  }
  if (held_.must_hold(record))
    held_.hold({record, builder_.detail(), model, facts, {}});
  else
    export_record(record, builder_.detail(), model);
}

void Worker::count_lost_reads(std::int64_t reads) {
  metrics_->add(record::Metric::records_dropped_total, static_cast<double>(reads), {"read_lost"});
  if (std::exchange(has_said_lost_, true)) return;
  say("steps came faster than they could be taken: some have no norms; ring_slots makes room for "
      "more, "
      "and gradvane_records_dropped_total{reason=\"read_lost\"} counts them");
}

/// Those whose norm over all processes has come, or will not.
bool Worker::export_held(bool all) {
  bool found = false;
  while (const auto held = held_.next(all)) {
    export_record(held->record, held->detail, held->model);
    found = true;
  }
  return found;
}

void Worker::export_record(const record::StepRecord& record, const record::StepDetail& detail,
                           const std::shared_ptr<const record::ModelInfo>& model) {
  if (model != model_) {
    model_ = model;
    (void)exporters_.set_model(model_);
  }
  (void)exporters_.export_step(record, detail, *model_);
  judge_.observe(record, detail, *model_,
                 {record.run_step, record::unix_time(), record::monotonic_time()});
  note_status(record);
}

void Worker::look_around() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_look_ < kLookEvery) return;
  last_look_ = now;
  const double cpu = thread_cpu_seconds();
  metrics_->add(record::Metric::agent_seconds_total, cpu - cpu_seconds_, {"worker"});
  cpu_seconds_ = cpu;
  note_alert_error();
  if (has_open_endpoint_ && endpoint_->leave_if_closed() && has_open_endpoint_.exchange(false))
    say("the program has closed the endpoint's descriptors; the run goes on without an endpoint");
  if (const int failures = held_.take_failures(); failures > 0)
    metrics_->add(record::Metric::export_failures_total, failures, {"norm_exchange"});
  show_open_incidents();
  if (ledger_ != nullptr) {
    ledger_->look();
    report_syncs();
  }
  if (state_ == RunState::running || state_ == RunState::stalled)
    judge_.tick({0, record::unix_time(), record::monotonic_time()});
  const std::chrono::duration<double> since = now - last_step_;
  if (state_ == RunState::running && options_.stall_seconds > 0 &&
      since.count() > options_.stall_seconds)
    set_state(RunState::stalled,
              "no step for " + std::to_string(static_cast<int>(since.count())) + " seconds");
}

void Worker::set_state(RunState state, std::string_view reason) {
  state_ = state;
  const std::string why = exporters::brief(reason);  // of an exception: of any length
  (void)exporters_.set_run_state(state, why);
  if (endpoint_file_) (void)endpoint_file_->write(url_, state);
  const std::lock_guard lock(mutex_);
  status_.state = name_of(state);
  status_.reason = why;
}

void Worker::note_status(const record::StepRecord& record) {
  StepResult latest = step_result(record, *model_);
  if (record.step_seconds) {
    // The first sample starts it: an average that starts at 0 would read low for long.
    step_seconds_ema_ = step_seconds_ema_ == 0
                            ? *record.step_seconds
                            : 0.9 * step_seconds_ema_ + 0.1 * *record.step_seconds;
  }
  const bool bad = record.has_nonfinite(record::Site::loss) ||
                   (record.has_nonfinite(record::Site::grad) && !record.is_handled_overflow());
  const std::lock_guard lock(mutex_);
  status_.steps += (record.is_step() ? 1 : 0) + record.dropped_before;
  status_.nonfinite_steps += bad ? 1 : 0;
  status_.steps_per_second = step_seconds_ema_ > 0 ? 1 / step_seconds_ema_ : 0;
  status_.latest = std::move(latest);
}

bool Worker::flush(std::chrono::milliseconds timeout) noexcept {
  if (is_child()) return false;
  const std::uint64_t wanted = handoff_.steps_published();
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] {
    return steps_exported_ >= wanted || has_ended_;
  }) && steps_exported_ >= wanted;
}

Status Worker::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Worker::add_collectable(std::weak_ptr<prometheus::Collectable> collectable) {
  metrics_->add_collectable(std::move(collectable));
}

void Worker::process_ends(bool failed, std::string_view reason) noexcept {
  begin_end(failed ? RunState::failed : RunState::finished, reason, Linger::yes);
}

void Worker::in_forked_child() noexcept {
  is_child_.store(true, std::memory_order_relaxed);
  if (endpoint_) endpoint_->close_in_child();
}

void Worker::say(const std::string& line) noexcept {
  if (!options_.log || is_left_behind()) return;  // what the callback uses may be gone by now
  try {
    options_.log("gradvane: " + line);
  } catch (...) {  // the user's callback: its trouble must not become ours
  }
}

}  // namespace gradvane::agent
