// The end of a step: StepRecorder's part that hands it over and forgets it.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "agent/public/step_result.hpp"
#include "agent/step/step_recorder.hpp"
#include "collectors/tensors/device_memory.hpp"
#include "collectors/tensors/tensor_view.hpp"
#include "record/clocks.hpp"

namespace gradvane::agent {
namespace {

double seconds(Clock::duration time) noexcept {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void StepRecorder::take_loss(const at::Tensor& loss) noexcept {
  const collectors::OwnCalls own(ledger_);
  losses_.add(loss, Losses::From::loop, device_loss_reads_);
}

void StepRecorder::take_loss(int optimizer, const at::Tensor& loss, Losses::From from) noexcept {
  const collectors::OwnCalls own(ledger_);
  at(optimizer).losses.add(loss, from, device_loss_reads_);
}

void StepRecorder::publish_loss(Watched& watched, const collectors::ReadPlan& plan) noexcept {
  if (watched.has_read && watched.loss_in_gradients) return;
  const Losses& losses = losses_of(watched);
  if (losses.on_device()) {
    (void)device_loss_reads_.set(0, losses.device_sum());
    (void)device_loss_reads_.read({&watched.facts.device_loss, 1});
    watched.facts.losses = losses.device_divisor();
    watched.facts.captured |= device_loss_reads_.captured();
    follow_device(device_loss_reads_);
    return;
  }
  if (!losses.on_host()) return;
  watched.loss_value = losses.host_value();
  loss_reader_.set_scalar(0, &watched.loss_value);
  if (!loss_reader_.read()) return;
  constexpr std::array kSites{kernels::Site::loss};
  watched.facts.loss_sequence = handoff_.publish(plan.id, kSites, loss_reader_.stats());
}

/// What the loop logged from a device goes into a slot of its own.
void StepRecorder::publish_device_user(Watched& watched) noexcept {
  if (!has_device_user_) return;
  has_device_user_ = false;
  for (std::size_t i = 0; i < device_user_.size(); ++i)
    if (device_user_[i].defined())
      (void)device_user_reads_.set(i, std::exchange(device_user_[i], {}));
  (void)device_user_reads_.read({&watched.facts.device_user, 1});
  watched.facts.captured |= device_user_reads_.captured();
  follow_device(device_user_reads_);
}

std::optional<StepResult> StepRecorder::finish(int optimizer, record::SkipReason skipped) noexcept
    try {
  const collectors::OwnCalls own(ledger_);
  catch_up();
  Watched& watched = at(optimizer);
  start(optimizer);
  if (leads(optimizer)) {
    run_step_ = next_run_step(optimizer);
    leader_ = optimizer;
  }
  ++watched.step;
  taken_pass_ = std::max(taken_pass_, watched.last_pass);
  note_trainer(watched);
  if (!enabled_) {
    forget_step(watched);
    return std::nullopt;
  }
  const auto plan = watch_.plan(optimizer);
  publish_loss(watched, *plan);
  publish_device_user(watched);

  collectors::StepFacts& facts = watched.facts;
  facts.step = watched.step;
  facts.run_step = run_step_;
  facts.optimizer = optimizer;
  facts.skipped = skipped;
  facts.micro_steps = watched.backwards > 0 ? watched.backwards : micro_steps_ + 1;
  facts.time = record::unix_time();
  facts.bad_micro_step = losses_of(watched).first_bad();
  facts.user = user_;
  facts.user_count = static_cast<std::int32_t>(watch_.user_metrics());
  if (has_tokens_) facts.tokens = tokens_;
  if (has_samples_) facts.samples = samples_;
  facts.refused_names = std::exchange(refused_names_, 0);
  note_device_memory(watched);

  const Clock::time_point now = Clock::now();
  facts.monotonic = seconds(now.time_since_epoch());
  facts.agent_seconds = seconds(agent_time_);
  Clock::duration known = agent_time_;
  for (std::size_t p = 0; p < phases_.size(); ++p) {
    known += phases_[p];
    facts.phase_seconds[p] = seconds(phases_[p]);
  }
  if (last_end_) {
    facts.step_seconds = seconds(now - *last_end_);
    const auto other = static_cast<std::size_t>(record::Phase::other);
    facts.phase_seconds[other] += std::max(0.0, seconds(now - *last_end_ - known));
  }
  last_end_ = now;
  const bool waits = options_.mode == Mode::immediate;
  const bool whole = waits && wait_for_devices(watched);
  note_syncs(watched, waits);
  handoff_.publish(facts);

  std::optional<StepResult> result;
  if (whole) result = result_of(facts);
  forget_step(watched);
  return result;
} catch (...) {  // no memory for the result; the step itself has been handed over
  forget_step(at(optimizer));
  return std::nullopt;
}

/// Seldom: it takes a lock that allocations take too.
void StepRecorder::note_device_memory(Watched& watched) noexcept {
  constexpr std::int64_t kEvery = 32;
  if (watched.device_reads == 0 || watched.step % kEvery != 1) return;
  const auto use = collectors::device_memory_use();
  if (!use) return;
  watched.facts.device_allocated_bytes = use->allocated_bytes;
  watched.facts.device_reserved_bytes = use->reserved_bytes;
}

/// What was waited for from the end of the step before up to now is this step's.
void StepRecorder::note_syncs(Watched& watched, bool has_waited) noexcept {
  if (ledger_ == nullptr) return;
  const collectors::SyncMark now = ledger_->end_step();
  watched.facts.syncs_after = last_mark_.value_or(collectors::SyncMark{});
  watched.facts.syncs_until = now;
  watched.facts.own_sync_budget = std::exchange(excused_syncs_, 0);
  if (has_waited && !watched.facts.captured)
    watched.facts.own_sync_budget += static_cast<std::int32_t>(devices_of(watched));
  last_mark_ = now;
}

std::int64_t StepRecorder::run_step(int optimizer) noexcept {
  start(optimizer);
  return leads(optimizer) ? next_run_step(optimizer) : run_step_;
}

/// The first one to step leads; when it is gone, as that of one fold of a cross-validation is in the
/// next, another one leads, and the run counts on.
bool StepRecorder::leads(int optimizer) const noexcept {
  return leader_ < 0 || leader_ == optimizer || watch_.is_removed(leader_);
}

std::int64_t StepRecorder::next_run_step(int optimizer) const noexcept {
  return (run_step_ > 0 ? run_step_ : at(optimizer).step) + 1;
}

/// Devices that hold anything of the step.
std::size_t StepRecorder::devices_of(const Watched& watched) noexcept {
  const bool has_loss = watched.facts.device_loss.source != 0;
  const bool has_user = watched.facts.device_user.source != 0;
  return std::max<std::size_t>(watched.device_reads, has_loss || has_user ? 1 : 0);
}

/// The one host sync a device of immediate mode. False where a step is being captured: it has no result.
bool StepRecorder::wait_for_devices(Watched& watched) noexcept {
  bool done = !watched.facts.captured;
  std::uint64_t waited = 0;
  // The last to be enqueued comes first.
  if (watched.facts.device_user.source != 0) done = done && device_user_reads_.wait(waited);
  if (watched.facts.device_loss.source != 0) done = done && device_loss_reads_.wait(waited);
  if (watched.facts.device_weights[0].source != 0)
    done = done && watched.device_weights.wait(waited);
  if (watched.device_reads > 0) done = done && watched.device_gradients.wait(waited);
  for (collectors::DeviceReads* reads : {&device_user_reads_, &device_loss_reads_,
                                         &watched.device_weights, &watched.device_gradients})
    follow_device(*reads);
  return done;
}

StepResult StepRecorder::result_of(const collectors::StepFacts& facts) {
  (void)gatherer_.ready(facts);
  const record::StepRecord& record = builder_.build(facts, gatherer_.take(facts), {});
  if (builder_.model() == nullptr) return {};
  return step_result(record, *builder_.model());
}

void StepRecorder::abandon(int optimizer) noexcept { forget_step(at(optimizer)); }

void StepRecorder::forget_read(Watched& watched) noexcept {
  watched.has_read = false;
  watched.loss_in_gradients = false;
  watched.facts = collectors::StepFacts{};
  watched.device_reads = 0;
  watched.reads_norm_again = false;
  watched.clips = 0;
  watched.scale = 0;
  watched.device_scale.reset();
  for (int o = 0; o < watch_.optimizers(); ++o) watch_.let_go_of_gradients(o);
}

void StepRecorder::forget_step(Watched& watched) noexcept {
  forget_read(watched);
  watched.losses.clear();
  watched.backwards = 0;
  losses_.clear();
  micro_steps_ = 0;
  phases_ = {};
  agent_time_ = {};
  tokens_ = samples_ = 0;
  has_tokens_ = has_samples_ = false;
  user_.fill(std::numeric_limits<double>::quiet_NaN());
  if (has_device_user_) device_user_.fill({});
  has_device_user_ = false;
}

void StepRecorder::add_phase(Phase phase, Clock::duration time) noexcept {
  phases_[static_cast<std::size_t>(phase)] += time;
}

void StepRecorder::count_syncs(collectors::SyncLedger* ledger) noexcept {
  if (ledger == nullptr && ledger_ != nullptr) ledger_->set_phase(collectors::kNoPhase);
  ledger_ = ledger;
  if (ledger_ != nullptr) ledger_->set_phase(static_cast<std::uint8_t>(phase_));
}

int StepRecorder::enter_phase(int phase) noexcept {
  if (ledger_ != nullptr) ledger_->set_phase(static_cast<std::uint8_t>(phase));
  return std::exchange(phase_, phase);
}

/// The index of a name; -1 where there is no room for it.
int StepRecorder::user_metric(std::string_view name) {
  const std::size_t before = watch_.user_metrics();
  const int index = watch_.user_metric(name);
  if (index < 0) ++refused_names_;
  new_names_ |= watch_.user_metrics() != before;
  return index;
}

void StepRecorder::log(std::string_view name, double value) noexcept try {
  if (!enabled_) return;
  if (const int index = user_metric(name); index >= 0)
    user_[static_cast<std::size_t>(index)] = value;
} catch (...) {  // no memory for a new name
  ++refused_names_;
}

void StepRecorder::log(std::string_view name, const at::Tensor& value) noexcept try {
  if (!enabled_) return;
  const collectors::OwnCalls own(ledger_);
  if (!device_user_reads_.takes(value) || value.numel() != 1) {
    const auto number = collectors::scalar_value(value);
    return log(name, number.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  const int index = user_metric(name);
  if (index < 0) return;
  const c10::AutoGradMode off(false);
  device_user_[static_cast<std::size_t>(index)] =
      value.detach().reshape({}).to(at::kDouble, false, /*copy=*/true);
  has_device_user_ = true;
} catch (...) {
  ++refused_names_;
}

}  // namespace gradvane::agent
