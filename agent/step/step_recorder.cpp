#include "agent/step/step_recorder.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectors/tensors/tensor_view.hpp"

namespace gradvane::agent {
using collectors::EntryTag;
namespace {

constexpr int kFew = 8;  ///< optimizers up to which every attach() makes the plans at once

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
  part_reader_.resize(1);
}

int StepRecorder::attach(std::unique_ptr<collectors::ModelSource> source) {
  const collectors::OwnCalls own(ledger_);
  const int index = watch_.add_later(std::move(source));
  watched_.push_back(std::make_unique<Watched>());
  is_stale_ = true;
  if (watch_.live() > kFew && watch_.live() < 2 * planned_) return index;
  watch_.rebuild();
  make_room();
  return index;
}

void StepRecorder::detach(int optimizer) noexcept {
  const collectors::OwnCalls own(ledger_);
  if (enabled_ && at(optimizer).has_read) hand_over_superseded(optimizer);
  watch_.remove(optimizer);
  forget_step(at(optimizer));
  release(at(optimizer));
  is_stale_ = true;
  if (watch_.live() <= kFew) make_plans();
}

/// The room for parameters that are gone. What a device may still write to stays.
void StepRecorder::release(Watched& watched) noexcept try {
  watched.gradients = {};
  watched.gradients.resize(2);  // the loss, and what it was scaled by
  watched.gradient_sites = {kernels::Site::loss, kernels::Site::scalar};
  watched.weights = {};
  watched.weight_sites = {};
  watched.sample = {};
  watched.device_sample.resize({}, 0);
  watched.weight_stats = {};
  watched.stamps = {};
  watched.parts = {};
  watched.entries = {};
  watched.watched_entries = {};
  watched.before_backward = {};
} catch (...) {  // no memory to let go of some: it stays as it is
}

void StepRecorder::make_plans() noexcept try {
  const collectors::OwnCalls own(ledger_);
  watch_.rebuild();
  make_room();
} catch (...) {  // no memory: the next call tries again
  is_stale_ = true;
}

int StepRecorder::only() const noexcept {
  int only = -1;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o)) continue;
    if (only >= 0) return -1;
    only = o;
  }
  return only;
}

void StepRecorder::make_room() {
  std::vector<std::shared_ptr<const collectors::ReadPlan>> plans;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o)) continue;
    make_room(o);
    plans.push_back(watch_.plan(o));
  }
  const std::uint64_t any_plan = plans.empty() ? 0 : plans.front()->id;
  device_loss_reads_.resize({kernels::Site::loss}, options_.ring_slots, any_plan);
  device_user_reads_.resize(std::vector(record::kMaxUserMetrics, kernels::Site::scalar),
                            options_.ring_slots, any_plan);
  handoff_.set_plans(plans, std::max(2 * watch_.largest_plan(), watch_.largest_plan() + 2));
  planned_ = watch_.live();
  is_stale_ = false;
}

void StepRecorder::make_room(int optimizer) {
  Watched& watched = at(optimizer);
  const std::vector<at::Tensor>& params = watch_.local_params(optimizer);
  const std::size_t count = params.size();
  watched.gradients.resize(count + 2);  // the loss, and what it was scaled by
  watched.weights.resize(count);
  watched.sample.resize(params, options_.update_sample);
  if (enabled_) watched.device_sample.resize(params, options_.update_sample);
  watched.gradient_sites.assign(count, kernels::Site::grad);
  watched.gradient_sites.push_back(kernels::Site::loss);
  watched.gradient_sites.push_back(kernels::Site::scalar);
  watched.weight_sites.assign(count, kernels::Site::weight);
  watched.weight_sites.resize(2 * count, kernels::Site::scalar);
  const std::uint64_t plan_id = watch_.plan(optimizer)->id;
  watched.device_gradients.resize(watched.gradient_sites, options_.ring_slots, plan_id, params);
  watched.device_weights.resize(watched.weight_sites, options_.ring_slots, plan_id, params);
  watched.weight_stats.assign(2 * count, kernels::TensorStats{});
  watched.stamps.assign(count, Stamp{});
  watched.parts.clear();
  watched.entries.clear();
  choose_watched_entries(watched);
}

void StepRecorder::follow_changes(int optimizer) noexcept try {
  catch_up();
  // The cheap look every step; the walk over everything only where weights are read anyway, and by one
  // optimizer for all.
  const bool thorough = enabled_ && reads_weights(at(optimizer));
  const bool differs =
      thorough && (leads(optimizer) ? watch_.changed_anywhere() : watch_.differs(optimizer));
  if (!new_names_ && !watch_.changed(optimizer) && !differs) return;
  new_names_ = false;
  watch_.rebuild();
  make_room();
} catch (...) {  // no memory: the old plan goes on, the next step tries again
  new_names_ = true;
}

/// Sets every gradient and the loss so far, and reads those on a CPU.
bool StepRecorder::scan_gradients(int optimizer) noexcept {
  Watched& watched = at(optimizer);
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  if (watched.stamps.size() != params.size()) return false;  // no memory for a grown model
  watch_.look_at_gradients(optimizer);
  const Losses& losses = losses_of(watched);
  watched.on_host = losses.on_host() || watched.scale > 0;
  watched.all_read = true;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const bool frozen = !params[i].requires_grad();
    const at::Tensor& gradient = watch_.gradient(optimizer, i);
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
  if (losses.on_host()) watched.loss_value = losses.host_value();
  watched.gradients.set_scalar(params.size(), losses.on_host() ? &watched.loss_value : nullptr);
  if (losses.on_device()) (void)watched.device_gradients.set(params.size(), losses.device_sum());
  watched.gradients.set_scalar(params.size() + 1, watched.scale > 0 ? &watched.scale : nullptr);
  if (watched.device_scale.defined())
    (void)watched.device_gradients.set(params.size() + 1, watched.device_scale);
  return watched.gradients.read();
}

/// A run that goes on from a checkpoint is known to do so once its optimizer has been loaded: by now.
void StepRecorder::start(int optimizer) noexcept try {
  Watched& watched = at(optimizer);
  if (watched.has_started) return;
  watched.has_started = true;
  watched.step = watched.first_step =
      options_.start_step > 0 ? options_.start_step : watch_.steps_done(optimizer);
} catch (...) {  // the steps before are not known
}

void StepRecorder::read_gradients(int optimizer, record::ReadAt where) noexcept {
  if (!enabled_ || at(optimizer).has_read) return;
  const collectors::OwnCalls own(ledger_);
  follow_changes(optimizer);
  start(optimizer);
  if (scan_gradients(optimizer)) publish_gradients(optimizer, where);
}

void StepRecorder::publish_gradients(int optimizer, record::ReadAt where) noexcept {
  Watched& watched = at(optimizer);
  watched.has_read = true;
  watched.reader = std::this_thread::get_id();
  watched.loss_in_gradients = losses_of(watched).any();
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
  watched.all_read &= reads.all_read();
  watched.facts.contiguous_copies += reads.copies();
  watched.facts.captured |= reads.captured();
  watched.facts.losses = losses_of(watched).device_divisor();
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
  return watched.step == watched.first_step || next % options_.weight_every == 0 ||
         watched.weights_answered != handoff_.weights_asked();
}

void StepRecorder::before_update(int optimizer) noexcept {
  if (!enabled_) return;
  catch_up();
  const collectors::OwnCalls own(ledger_);
  Watched& watched = at(optimizer);
  // Nothing comes between the optimizer's own hook and here.
  if (watched.facts.read_at != record::ReadAt::optimizer) look_again(optimizer);
  watched.facts.lr_count =
      watch_.learning_rates(optimizer, watched.facts.lr.data(), record::kMaxLearningRates);
  watched.reads_weights = reads_weights(watched);
  watched.weights_answered = handoff_.weights_asked();
  if (!watched.reads_weights || options_.update_sample == 0) return;
  watched.sample.keep(watch_.local_params(optimizer));
  watched.device_sample.keep(watch_.local_params(optimizer));
}

void StepRecorder::after_update(int optimizer) noexcept {
  Watched& watched = at(optimizer);
  if (!enabled_ || !std::exchange(watched.reads_weights, false)) return;
  const collectors::OwnCalls own(ledger_);
  const std::vector<at::Tensor>& params = watch_.local_params(optimizer);
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

}  // namespace gradvane::agent
