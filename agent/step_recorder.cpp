#include "agent/step_recorder.hpp"

#include <ATen/ops/add.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "agent/step_result.hpp"
#include "agent/unix_time.hpp"
#include "collectors/device_memory.hpp"
#include "collectors/tensor_view.hpp"

namespace gradvane::agent {
namespace {

using collectors::EntryTag;

double seconds(Clock::duration time) noexcept {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

StepRecorder::StepRecorder(const Options& options, bool enabled)
    : options_(options),
      enabled_(enabled),
      watch_(options.groups, options.max_groups),
      handoff_(options.ring_slots),
      gatherer_(handoff_),
      builder_({options.vanishing_threshold, options.exploding_threshold}) {
  user_.fill(std::numeric_limits<double>::quiet_NaN());
  loss_reader_.resize(1);
}

void StepRecorder::attach(torch::nn::Module& module, torch::optim::Optimizer* optimizer) {
  const int index = watch_.add(module, optimizer);
  watched_.push_back(std::make_unique<Watched>());
  const std::int64_t done =
      options_.start_step > 0 ? options_.start_step : watch_.steps_done(index);
  at(index).step = at(index).first_step = done;
  make_room();
}

void StepRecorder::make_room() {
  std::vector<std::shared_ptr<const collectors::ReadPlan>> plans;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    Watched& watched = at(o);
    const std::vector<at::Tensor>& params = watch_.params(o);
    const std::size_t count = params.size();
    watched.gradients.resize(count + 1);  // and the loss
    watched.weights.resize(count);
    watched.sample.resize(params, options_.update_sample);
    if (enabled_) watched.device_sample.resize(params, options_.update_sample);
    watched.gradient_sites.assign(count, kernels::Site::grad);
    watched.gradient_sites.push_back(kernels::Site::loss);
    watched.weight_sites.assign(count, kernels::Site::weight);
    watched.weight_sites.resize(2 * count, kernels::Site::scalar);
    const std::uint64_t plan_id = watch_.plan(o)->id;
    watched.device_gradients.resize(watched.gradient_sites, options_.ring_slots, plan_id);
    watched.device_weights.resize(watched.weight_sites, options_.ring_slots, plan_id);
    if (o == 0) device_loss_reads_.resize({kernels::Site::loss}, options_.ring_slots, plan_id);
    watched.weight_stats.assign(2 * count, kernels::TensorStats{});
    watched.stamps.assign(count, Stamp{});
    plans.push_back(watch_.plan(o));
  }
  handoff_.set_plans(plans, std::max<std::size_t>(2 * watch_.largest_plan(), 1) + 1);
}

void StepRecorder::follow_changes(int optimizer) noexcept try {
  // The cheap look every step, the walk over the modules only where weights are read anyway.
  const bool thorough = enabled_ && reads_weights(at(optimizer));
  if (!new_names_ && !watch_.changed(optimizer) && !(thorough && watch_.changed_anywhere())) return;
  new_names_ = false;
  watch_.rebuild();
  make_room();
} catch (...) {  // no memory: the old plan goes on, the next step tries again
  new_names_ = true;
}

void StepRecorder::take_loss(const at::Tensor& loss) noexcept try {
  if (device_loss_reads_.takes(loss) && loss.numel() == 1) {
    // A copy at once: the program may go on to divide its loss in place.
    const c10::AutoGradMode off(false);
    const at::Tensor value = loss.detach().reshape({}).to(at::kDouble, false, /*copy=*/true);
    device_loss_ = device_losses_ == 0 ? value : device_loss_.add(value);
    ++device_losses_;
    return;
  }
  const auto value = collectors::scalar_value(loss);
  if (!value) return;
  loss_ += *value;
  ++losses_;
} catch (...) {  // no memory on the device: the step's loss is not measured
  device_losses_ = 0;
}

/// Sets every gradient and the loss so far, and reads those on a CPU.
bool StepRecorder::scan_gradients(int optimizer) noexcept {
  Watched& watched = at(optimizer);
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  if (watched.stamps.size() != params.size()) return false;  // no memory for a grown model
  watched.on_host = losses_ > 0;
  watched.all_read = true;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const bool frozen = !params[i].requires_grad();
    const at::Tensor& gradient = params[i].grad();
    watched.stamps[i] = stamp_of(gradient);
    const EntryTag tag = frozen               ? EntryTag::frozen
                         : gradient.defined() ? EntryTag::read
                                              : EntryTag::missing;
    if (tag == EntryTag::read && watched.device_gradients.takes(gradient)) {
      watched.all_read &= watched.device_gradients.set(i, gradient) != EntryTag::unsupported;
      watched.gradients.set(i, gradient, EntryTag::elsewhere);
      continue;
    }
    watched.gradients.set(i, gradient, tag);
    if (tag == EntryTag::read) {
      watched.on_host = true;
      watched.all_read &= gradient.is_cpu();
    } else {
      watched.device_gradients.leave_out(i, tag);
    }
  }
  if (losses_ > 0) mean_loss_ = loss_ / losses_;
  watched.gradients.set_scalar(params.size(), losses_ > 0 ? &mean_loss_ : nullptr);
  if (device_losses_ > 0) (void)watched.device_gradients.set(params.size(), device_loss_);
  return watched.gradients.read();
}

void StepRecorder::read_gradients(int optimizer, record::ReadAt where) noexcept {
  if (!enabled_ || at(optimizer).has_read) return;
  follow_changes(optimizer);
  Watched& watched = at(optimizer);
  if (!scan_gradients(optimizer)) return;
  watched.has_read = true;
  watched.loss_in_gradients = losses_ + device_losses_ > 0;
  collectors::StepFacts& facts = watched.facts;
  facts.read_at = where;
  facts.contiguous_copies += watched.gradients.copies();
  read_device_gradients(watched);
  // What devices hold is in their own slots, and these say too what is missing.
  if (!watched.on_host && watched.device_reads > 0) return;
  facts.grad_sequence = handoff_.publish(watch_.plan(optimizer)->id, watched.gradient_sites,
                                         watched.gradients.stats());
}

void StepRecorder::read_device_gradients(Watched& watched) noexcept {
  collectors::DeviceReads& reads = watched.device_gradients;
  watched.device_reads = reads.read(watched.facts.device_gradients);
  watched.facts.contiguous_copies += reads.copies();
  watched.facts.captured |= reads.captured();
  watched.facts.losses = std::max(device_losses_, 1);
  follow_device(reads);
}

void StepRecorder::follow_device(collectors::DeviceReads& reads) noexcept try {
  auto sources = reads.take_new_sources();
  if (!sources.empty()) handoff_.add_sources(std::move(sources));
  if (!reads.failure().empty()) handoff_.note_device_failure(reads.failure());
} catch (...) {  // no memory: those reads will count as lost
}

bool StepRecorder::reads_weights(const Watched& watched) const noexcept {
  if (options_.weight_every == 0) return false;
  const std::int64_t next = watched.step + 1;
  return watched.step == watched.first_step || next % options_.weight_every == 0;
}

void StepRecorder::before_update(int optimizer) noexcept {
  if (!enabled_) return;
  Watched& watched = at(optimizer);
  watched.facts.lr_count =
      watch_.learning_rates(optimizer, watched.facts.lr.data(), record::kMaxLearningRates);
  if (!reads_weights(watched) || options_.update_sample == 0) return;
  watched.sample.keep(watch_.params(optimizer));
  watched.device_sample.keep(watch_.params(optimizer));
}

void StepRecorder::after_update(int optimizer) noexcept {
  Watched& watched = at(optimizer);
  if (!enabled_ || !reads_weights(watched)) return;
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  if (watched.weight_stats.size() != 2 * params.size()) return;
  bool on_host = false;
  if (options_.update_sample > 0) watched.device_sample.difference(params);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const at::Tensor changes = watched.device_sample.changes(i);
    if (changes.defined()) (void)watched.device_weights.set(params.size() + i, changes);
    const bool elsewhere = watched.device_weights.takes(params[i]);
    if (elsewhere) (void)watched.device_weights.set(i, params[i]);
    watched.weights.set(i, params[i], elsewhere ? EntryTag::elsewhere : EntryTag::read);
    on_host |= !elsewhere;
  }
  if (!watched.weights.read()) return;
  const std::size_t device_reads = watched.device_weights.read(watched.facts.device_weights);
  follow_device(watched.device_weights);
  watched.facts.captured |= watched.device_weights.captured();
  watched.facts.contiguous_copies += watched.weights.copies() + watched.device_weights.copies();
  if (!on_host && device_reads > 0) return;
  const auto stats = watched.weights.stats();
  std::copy(stats.begin(), stats.end(), watched.weight_stats.begin());
  if (options_.update_sample > 0)
    watched.sample.difference(params, std::span(watched.weight_stats).subspan(params.size()));
  watched.facts.weight_sequence =
      handoff_.publish(watch_.plan(optimizer)->id, watched.weight_sites, watched.weight_stats);
}

void StepRecorder::publish_loss(Watched& watched, const collectors::ReadPlan& plan) noexcept {
  if (watched.has_read && watched.loss_in_gradients) return;
  if (device_losses_ > 0) {
    (void)device_loss_reads_.set(0, device_loss_);
    (void)device_loss_reads_.read({&watched.facts.device_loss, 1});
    watched.facts.losses = device_losses_;
    watched.facts.captured |= device_loss_reads_.captured();
    follow_device(device_loss_reads_);
    return;
  }
  if (losses_ == 0) return;
  mean_loss_ = loss_ / losses_;
  loss_reader_.set_scalar(0, &mean_loss_);
  if (!loss_reader_.read()) return;
  constexpr std::array kSites{kernels::Site::loss};
  watched.facts.loss_sequence = handoff_.publish(plan.id, kSites, loss_reader_.stats());
}

std::optional<StepResult> StepRecorder::finish(int optimizer) noexcept try {
  Watched& watched = at(optimizer);
  ++watched.step;
  if (first_stepper_ < 0) first_stepper_ = optimizer;
  if (!enabled_) {
    forget_step(watched);
    return std::nullopt;
  }
  const auto plan = watch_.plan(optimizer);
  publish_loss(watched, *plan);

  collectors::StepFacts& facts = watched.facts;
  facts.step = watched.step;
  facts.run_step = at(first_stepper_).step;
  facts.optimizer = optimizer;
  facts.micro_steps = micro_steps_ + 1;
  facts.time = unix_time();
  facts.user = user_;
  facts.user_count = static_cast<std::int32_t>(watch_.user_metrics());
  if (has_tokens_) facts.tokens = tokens_;
  if (has_samples_) facts.samples = samples_;
  facts.refused_names = std::exchange(refused_names_, 0);
  note_device_memory(watched);

  const Clock::time_point now = Clock::now();
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
  const bool whole = options_.mode == Mode::immediate && wait_for_devices(watched);
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

/// The one host sync a device of immediate mode. False where a step is being captured: it has no result.
bool StepRecorder::wait_for_devices(Watched& watched) noexcept {
  bool done = !watched.facts.captured;
  std::uint64_t waited = 0;
  // The last to be enqueued comes first.
  if (watched.facts.device_loss.source != 0) done = done && device_loss_reads_.wait(waited);
  if (watched.facts.device_weights[0].source != 0)
    done = done && watched.device_weights.wait(waited);
  if (watched.device_reads > 0) done = done && watched.device_gradients.wait(waited);
  for (collectors::DeviceReads* reads :
       {&device_loss_reads_, &watched.device_weights, &watched.device_gradients})
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

void StepRecorder::forget_step(Watched& watched) noexcept {
  watched.has_read = false;
  watched.loss_in_gradients = false;
  watched.facts = collectors::StepFacts{};
  watched.device_reads = 0;
  loss_ = 0;
  losses_ = 0;
  device_loss_.reset();
  device_losses_ = 0;
  micro_steps_ = 0;
  phases_ = {};
  agent_time_ = {};
  tokens_ = samples_ = 0;
  has_tokens_ = has_samples_ = false;
  user_.fill(std::numeric_limits<double>::quiet_NaN());
}

StepRecorder::Stamp StepRecorder::stamp_of(const at::Tensor& gradient) noexcept {
  Stamp stamp;
  if (!gradient.defined() || gradient.is_inference()) return stamp;
  stamp.data = gradient.unsafeGetTensorImpl();
  stamp.version = gradient.unsafeGetTensorImpl()->version_counter().current_version();
  return stamp;
}

bool StepRecorder::gradients_unchanged(int optimizer) const noexcept {
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  const Watched& watched = at(optimizer);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& gradient = params[i].grad();
    // An inference tensor counts no versions: it may have been written to.
    if (gradient.defined() && gradient.is_inference()) return false;
    if (stamp_of(gradient) != watched.stamps[i]) return false;
  }
  return true;
}

void StepRecorder::add_phase(Phase phase, Clock::duration time) noexcept {
  phases_[static_cast<std::size_t>(phase)] += time;
}

void StepRecorder::log(std::string_view name, double value) noexcept try {
  if (!enabled_) return;
  const std::size_t before = watch_.user_metrics();
  const int index = watch_.user_metric(name);
  if (index < 0) {
    ++refused_names_;
    return;
  }
  user_[static_cast<std::size_t>(index)] = value;
  new_names_ |= watch_.user_metrics() != before;
} catch (...) {  // no memory for a new name
  ++refused_names_;
}

}  // namespace gradvane::agent
