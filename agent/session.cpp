#include "agent/session.hpp"

#include <errno.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <utility>

#include "agent/step/own_time.hpp"
#include "exporters/files/live_runs.hpp"
#include "record/clocks.hpp"
#include "record/run/launchers.hpp"

namespace gradvane::agent {
namespace {

/// Two runs of one script at once are two runs to everyone who asks by name.
void name_by_default(record::RunInfo& run, const ResolvedOptions& resolved) {
  run.run = resolved.default_run.empty() ? program_invocation_short_name : resolved.default_run;
  const bool has_shared_id = !resolved.options.run_id.empty();
  const auto holder = exporters::holder_of_name(resolved.options.run_dir, run, has_shared_id);
  const bool is_of_launcher =
      has_shared_id && run.run_id == record::launcher_run_id(record::process_environment());
  const bool is_same = holder == run.run_id;
  // One step of Slurm may start several programs, and its id is no name for each. Ranks of one program keep it, since no
  // rank could find the new id of another. A user who gives two processes one run_id has said that they are one run.
  if (is_same && is_of_launcher && run.world_size == 1)
    run.run_id = record::new_run_id(run.start_time);
  if (holder && (!is_same || is_of_launcher)) run.run += "-" + run.run_id;
  for (record::Setting& setting : run.settings)
    if (setting.key == "run") setting.value = run.run;
}

record::RunInfo describe_run(const ResolvedOptions& resolved) {
  const Options& options = resolved.options;
  record::RunInfo run;
  run.run = options.run;
  run.rank = options.rank;
  run.local_rank = options.local_rank;
  run.world_size = options.world_size;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) run.host = host.data();
  run.pid = ::getpid();
  run.version = GRADVANE_VERSION;
  run.torch_version = collectors::torch_version();
  run.start_time = record::unix_time();
  run.settings = resolved.settings;
  run.run_id = options.run_id;
  if (run.run_id.empty())
    run.run_id = record::unnamed_run_id(run.start_time, record::process_environment());
  if (run.run.empty()) name_by_default(run, resolved);
  return run;
}

}  // namespace

Session::Session(const ResolvedOptions& resolved)
    : seat_(resolved.options),
      governor_(resolved.options),
      recorder_(resolved.options, resolved.options.enabled, governor_),
      exchange_(resolved.options.norm_exchange != NormSharing::off),
      exceptions_(std::uncaught_exceptions()) {
  recorder_.count_syncs(seat_.ledger());
  if (!resolved.options.enabled) return;
  record::RunInfo run = describe_run(resolved);
  run_ = run.run;
  is_renamed_ = agent::is_renamed(resolved.options, run);
  local_rank_ = run.local_rank;
  ConfigFile config(resolved, run.settings);
  worker_ = std::make_unique<Worker>(resolved.options, std::move(run), recorder_.handoff(),
                                     governor_, &exchange_, seat_.ledger(), std::move(config));
}

Session::~Session() {
  if (!close(Worker::Linger::no)) (void)worker_.release();  // better than to destroy it
}

bool Session::close(Worker::Linger linger) noexcept {
  if (worker_ == nullptr) return true;
  if (worker_->is_child()) return false;  // its thread lives in the parent
  if (std::uncaught_exceptions() > exceptions_)
    end(record::RunState::failed, "an exception left the training loop", linger);
  else
    end(record::RunState::finished, "", linger);
  return !worker_->is_left_behind();
}

bool Session::live() noexcept {
  if (worker_ == nullptr || has_ended_) return false;
  if (!worker_->is_child()) return true;
  recorder_.disable();
  return false;
}

void Session::end(record::RunState state, std::string_view reason, Worker::Linger linger) noexcept {
  if (!begin_end(state, reason, linger)) return;
  await_end();
  leave();
}

bool Session::begin_end(record::RunState state, std::string_view reason,
                        Worker::Linger linger) noexcept {
  if (!live()) return false;
  has_ended_ = true;
  recorder_.hand_over_unfinished();
  recorder_.disable();
  // A loop that was asked to stop ends as if all were well.
  const bool was_stopped = state == record::RunState::finished && governor_.should_stop();
  if (was_stopped)
    worker_->begin_end(record::RunState::failed, governor_.stop_reason(), linger);
  else
    worker_->begin_end(state, reason, linger);
  return true;
}

void Session::await_end() noexcept {
  worker_->await_end();
  leave_process_watch(*worker_);
}

void Session::leave() noexcept {
  recorder_.count_syncs(nullptr);
  seat_.leave();
}

std::optional<StepResult> Session::finish(int optimizer, record::SkipReason skipped,
                                          bool is_taken_here) noexcept {
  const OwnTime own(recorder_);
  return recorder_.finish(optimizer, skipped, is_taken_here);
}

void Session::outside_steps(int delta) noexcept {
  seat_.outside_steps(delta);
  worker_->pauses().change(delta, Clock::now());
}

int Session::enter_phase(Phase phase) noexcept {
  const int index = static_cast<int>(phase);
  if (index < record::kStepPhases) return recorder_.enter_phase(index);
  outside_steps(1);
  return collectors::kNoPhase;
}

void Session::leave_phase(Phase phase, int before) noexcept {
  if (phase == Phase::checkpoint) governor_.note_checkpoint(recorder_.last_run_step());
  if (static_cast<int>(phase) < record::kStepPhases)
    (void)recorder_.enter_phase(before);
  else
    outside_steps(-1);
}

std::string Session::url() const {
  return worker_ == nullptr || worker_->is_child() ? std::string() : worker_->url();
}

Status Session::status() const {
  if (worker_ != nullptr && !worker_->is_child()) return worker_->status();
  Status off;
  off.state = "off";
  off.reason = worker_ == nullptr ? "switched off" : "child of a fork";
  return off;
}

}  // namespace gradvane::agent
