#include "agent/step_recorder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "agent/gradient_clip.hpp"
#include "agent/step_result.hpp"
#include "collectors/tensor_view.hpp"

namespace gradvane::agent {
namespace {

using collectors::EntryTag;

double seconds(Clock::duration time) noexcept {
  return std::chrono::duration<double>(time).count();
}

double unix_time() noexcept {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

StepRecorder::StepRecorder(const Options& options, bool enabled)
    : options_(options),
      enabled_(enabled),
      watch_(options.groups, options.max_groups),
      handoff_(options.ring_slots),
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
    watched.gradient_sites.assign(count, kernels::Site::grad);
    watched.gradient_sites.push_back(kernels::Site::loss);
    watched.weight_sites.assign(count, kernels::Site::weight);
    watched.weight_sites.resize(2 * count, kernels::Site::scalar);
    watched.weight_stats.assign(2 * count, kernels::TensorStats{});
    watched.stamps.assign(count, Stamp{});
    if (options_.mode == Mode::immediate) watched.published.reserve(count + 1);
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

void StepRecorder::take_loss(const at::Tensor& loss) noexcept {
  const auto value = collectors::scalar_value(loss);
  if (!value) return;
  loss_ += *value;
  ++losses_;
}

bool StepRecorder::scan_gradients(int optimizer) noexcept {
  Watched& watched = at(optimizer);
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const bool frozen = !params[i].requires_grad();
    const at::Tensor& gradient = params[i].grad();
    watched.gradients.set(i, gradient, frozen ? EntryTag::frozen : EntryTag::read);
    watched.stamps[i] = stamp_of(gradient);
  }
  if (losses_ > 0) mean_loss_ = loss_ / losses_;
  watched.gradients.set_scalar(params.size(), losses_ > 0 ? &mean_loss_ : nullptr);
  return watched.gradients.read();
}

void StepRecorder::read_gradients(int optimizer, record::ReadAt where) noexcept {
  if (!enabled_ || at(optimizer).has_read) return;
  follow_changes(optimizer);
  Watched& watched = at(optimizer);
  if (!scan_gradients(optimizer)) return;
  watched.has_read = true;
  watched.loss_in_gradients = losses_ > 0;
  watched.facts.read_at = where;
  watched.facts.contiguous_copies += watched.gradients.copies();
  const auto stats = watched.gradients.stats();
  watched.facts.grad_sequence =
      handoff_.publish(watch_.plan(optimizer)->id, watched.gradient_sites, stats);
  if (options_.mode == Mode::immediate) watched.published.assign(stats.begin(), stats.end());
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
  if (reads_weights(watched) && options_.update_sample > 0)
    watched.sample.keep(watch_.params(optimizer));
}

void StepRecorder::after_update(int optimizer) noexcept {
  Watched& watched = at(optimizer);
  if (!enabled_ || !reads_weights(watched)) return;
  const std::vector<at::Tensor>& params = watch_.params(optimizer);
  for (std::size_t i = 0; i < params.size(); ++i) watched.weights.set(i, params[i], EntryTag::read);
  if (!watched.weights.read()) return;
  watched.facts.contiguous_copies += watched.weights.copies();
  const auto stats = watched.weights.stats();
  std::copy(stats.begin(), stats.end(), watched.weight_stats.begin());
  if (options_.update_sample > 0)
    watched.sample.difference(params, std::span(watched.weight_stats).subspan(params.size()));
  watched.facts.weight_sequence =
      handoff_.publish(watch_.plan(optimizer)->id, watched.weight_sites, watched.weight_stats);
}

void StepRecorder::publish_loss(Watched& watched, const collectors::ReadPlan& plan) noexcept {
  if (losses_ == 0 || (watched.has_read && watched.loss_in_gradients)) return;
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
  handoff_.publish(facts);

  std::optional<StepResult> result;
  if (options_.mode == Mode::immediate) result = result_of(watched, plan);
  forget_step(watched);
  return result;
} catch (...) {  // no memory for the result; the step itself has been handed over
  forget_step(at(optimizer));
  return std::nullopt;
}

StepResult StepRecorder::result_of(const Watched& watched,
                                   std::shared_ptr<const collectors::ReadPlan> plan) {
  collectors::StepSlots slots;
  slots.plan = std::move(plan);
  if (watched.facts.grad_sequence != 0) slots.gradients = watched.published;
  if (watched.facts.loss_sequence != 0) slots.loss = loss_reader_.stats();
  if (watched.facts.weight_sequence != 0) slots.weights = watched.weight_stats;
  const record::StepRecord& record = builder_.build(watched.facts, slots, {});
  return step_result(record, *builder_.model());
}

void StepRecorder::abandon(int optimizer) noexcept { forget_step(at(optimizer)); }

void StepRecorder::forget_step(Watched& watched) noexcept {
  watched.has_read = false;
  watched.loss_in_gradients = false;
  watched.facts = collectors::StepFacts{};
  loss_ = 0;
  losses_ = 0;
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

at::Tensor StepRecorder::clip(int optimizer, double max_norm) {
  const int begin = std::max(optimizer, 0);
  const int end = optimizer < 0 ? watch_.optimizers() : optimizer + 1;
  std::vector<at::Tensor> gradients;
  double norm = 0;
  bool all_read = true;
  for (int o = begin; o < end; ++o) {
    if (enabled_ && !at(o).has_read && optimizer >= 0) read_gradients(o, record::ReadAt::clip);
    // What was read before and written to since has another norm now.
    if (!at(o).has_read || !gradients_unchanged(o)) {
      follow_changes(o);
      if (!scan_gradients(o)) throw std::bad_alloc();
    }
    const auto stats = at(o).gradients.stats();
    const std::vector<at::Tensor>& params = watch_.params(o);
    for (std::size_t i = 0; i < params.size(); ++i) {
      const EntryTag tag = collectors::tag_of(stats[i]);
      if (tag == EntryTag::unsupported) all_read = false;
      if (params[i].requires_grad() && params[i].grad().defined())
        gradients.push_back(params[i].grad());
      if (tag != EntryTag::read) continue;
      norm = std::hypot(norm, stats[i].norm());
      if (stats[i].nan > 0) norm = std::numeric_limits<double>::quiet_NaN();
      if (stats[i].pos_inf + stats[i].neg_inf > 0 && !std::isnan(norm))
        norm = std::numeric_limits<double>::infinity();
    }
  }
  if (!all_read) return clip_with_torch(gradients, max_norm);
  const double coefficient = clip_coefficient(norm, max_norm);
  scale_gradients(gradients, coefficient);
  for (int o = begin; o < end; ++o) {
    if (!std::isfinite(norm)) continue;
    at(o).facts.clip_coefficient = coefficient;
    at(o).facts.norm_after_clip = norm * coefficient;
  }
  return scalar_tensor(norm);
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
