#include "collectors/steps/step_builder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/clip_coefficient.hpp"
#include "record/hypot.hpp"
#include "record/numbers.hpp"

namespace gradvane::collectors {
namespace {

using kernels::TensorStats;
using record::ParamState;
using record::Site;

record::NonfiniteCounts counts_of(const TensorStats& stats) {
  return {stats.nan, stats.pos_inf, stats.neg_inf};
}

void add(record::NonfiniteCounts& into, const record::NonfiniteCounts& more) {
  for (std::size_t k = 0; k < into.size(); ++k) into[k] += more[k];
}

/// `factor`, by which all elements are multiplied, is positive and finite.
record::TensorNumbers numbers_of(const TensorStats& stats, double factor = 1) {
  record::TensorNumbers numbers;
  numbers.numel = stats.numel;
  numbers.zero = stats.zero;
  numbers.subnormal = stats.subnormal;
  numbers.nonfinite = counts_of(stats);
  numbers.first_nonfinite = stats.first_nonfinite;
  numbers.norm = stats.norm() * factor;
  numbers.sum = stats.total() * factor;
  numbers.abs_max = stats.abs_max * factor;
  numbers.abs_min_nonzero = stats.abs_min_nonzero * factor;
  numbers.abs_mean = stats.mean_magnitude() * factor;
  return numbers;
}

/// Of a tensor of one element.
double number_of(const TensorStats& stats) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (stats.nan > 0) return std::numeric_limits<double>::quiet_NaN();
  if (stats.nonfinite() > 0) return stats.pos_inf > 0 ? kInfinity : -kInfinity;
  return stats.total();
}

ParamState state_of(const TensorStats& stats) {
  switch (tag_of(stats)) {
    case EntryTag::frozen:
      return ParamState::frozen;
    case EntryTag::missing:
    case EntryTag::elsewhere:  // its own slot was lost
      return ParamState::missing;
    case EntryTag::empty:
      return ParamState::empty;
    case EntryTag::unsupported:
      return ParamState::unsupported;
    case EntryTag::read:
      break;
  }
  if (stats.nonfinite() > 0) return ParamState::nonfinite;
  return stats.zero == stats.numel ? ParamState::zero : ParamState::finite;
}

std::optional<double> measured(double value) {
  return value == kNotMeasured ? std::nullopt : std::optional(value);
}

/// Adds norms as squares over the whole range of doubles.
void add_norm(std::optional<double>& into, double norm) {
  record::join_into(into, record::Join::norm, norm);
}

/// ‖Δw‖² of a parameter from its sample, as a norm.
double estimated_update(const TensorStats& sample, std::int64_t numel) {
  return std::sqrt(static_cast<double>(numel) / static_cast<double>(sample.numel)) * sample.norm();
}

}  // namespace

const record::StepRecord& StepBuilder::build(const StepFacts& facts, const StepSlots& slots,
                                             const kernels::RunningTotals& totals) {
  record_ = record::StepRecord{};
  take_facts(facts);
  clear_detail();  // also where this step's slots are lost: the last step's numbers are not its own
  if (slots.plan != nullptr) {
    const ReadPlan& plan = *slots.plan;
    const std::size_t params = plan.params.size();
    follow(plan.model);
    filled_ = slots.plan;
    if (slots.loss.size() == 1) take_loss(slots.loss.front());
    if (slots.gradients.size() == params + 1 || slots.gradients.size() == params + 2) {
      if (slots.loss.empty()) take_loss(slots.gradients[params]);
      if (slots.gradients.size() > params + 1) take_scale(slots.gradients[params + 1]);
      if (!facts.gradients_scaled) unscale_ = 1;
      take_gradients(plan, slots.gradients.first(params));
    }
    if (slots.weights.size() == 2 * params)
      take_weights(plan, slots.weights.first(params), slots.weights.last(params));
    take_user(slots.user);
    sum_up_groups(plan);
  }
  if (std::isfinite(facts.loop_loss) && record_.loss && std::isfinite(*record_.loss))
    record_.loss = facts.loop_loss;
  take_clipping();
  // Nothing stands between the optimizer's hook and the update: what was read is what was used.
  if (facts.read_at == record::ReadAt::optimizer && !record_.clip_coefficient)
    record_.grad_norm_at_step = record_.grad_norm;
  // A batch with a bad loss that the loop left behind is no business of the scaler's.
  judge_overflow(facts.has_scaler &&
                 !(facts.superseded && record_.has_nonfinite(record::Site::loss)));
  if (facts.left_to_device > 0 && record_.skipped == record::SkipReason::none)
    judge_on_device(slots.loss.empty());
  take_totals(totals);
  return record_;
}

/// What a gradient scaler does when gradients overflow follows from the gradients: it skips the step.
void StepBuilder::judge_overflow(bool is_scalers) {
  const auto& counts = record_.nonfinite[index_of(Site::grad)];
  const bool bad = record::any(counts);
  if (is_scalers && bad) record_.skipped = record::SkipReason::amp_overflow;
  if (record_.skipped != record::SkipReason::amp_overflow) {
    if (record_.site_measured[index_of(Site::grad)]) overflows_in_a_row_ = 0;
    return;
  }
  record_.overflow_persists = ++overflows_in_a_row_ > kTrustedOverflows;
  if (record_.overflow_persists || !bad) return;
  add(overflowed_, counts);
  ++overflowed_steps_;
}

/// As the pass has on the device, by the same elements. A loss that was read by itself came too late for it.
void StepBuilder::judge_on_device(bool is_loss_in_gradients) {
  const bool is_bad = record::any(record_.nonfinite[index_of(Site::grad)]) ||
                      (is_loss_in_gradients && record_.has_nonfinite(Site::loss));
  if (is_bad) record_.skipped = record::SkipReason::governor;
}

void StepBuilder::take_totals(const kernels::RunningTotals& totals) {
  for (std::size_t s = 0; s < record::kSites; ++s) {
    for (std::size_t k = 0; k < record::kNonfiniteKinds; ++k)
      record_.nonfinite_total[s][k] = totals.elements[s][k];
    record_.nonfinite_steps_total[s] = totals.reads[s];
  }
  for (std::size_t k = 0; k < record::kNonfiniteKinds; ++k)
    record_.nonfinite_total[index_of(Site::grad)][k] -= overflowed_[k];
  record_.nonfinite_steps_total[index_of(Site::grad)] -= overflowed_steps_;
}

void StepBuilder::follow(const std::shared_ptr<const record::ModelInfo>& model) {
  if (model == model_) return;
  model_ = model;
  filled_.reset();
  detail_.params.assign(model->params.size(), record::ParamStats{});
  detail_.groups.assign(model->groups.size(), record::GroupStats{});
}

/// Only a parameter's state outlives the step: another optimizer's step says nothing of it. The cost is
/// that of the last step's own parameters, however many other optimizers there are.
void StepBuilder::clear_detail() {
  if (filled_ == nullptr) return;
  for (const std::int32_t i : filled_->params) {
    record::ParamStats& param = detail_.params[static_cast<std::size_t>(i)];
    const ParamState state = param.state;
    param = record::ParamStats{};
    param.state = state;
  }
  filled_.reset();
  for (record::GroupStats& group : detail_.groups) group = record::GroupStats{};
}

void StepBuilder::take_facts(const StepFacts& facts) {
  record_.step = facts.step;
  record_.run_step = facts.run_step;
  record_.optimizer = facts.optimizer;
  record_.micro_steps = facts.micro_steps;
  record_.time = facts.time;
  record_.monotonic = facts.monotonic;
  record_.bad_micro_step = facts.bad_micro_step;
  record_.first_bad_rank =
      facts.first_bad_rank < 0 ? std::nullopt : std::optional(facts.first_bad_rank);
  record_.first_bad_loss = facts.first_bad_loss;
  record_.read_at = facts.read_at;
  record_.skipped = facts.skipped;
  clip_max_norm_ = measured(facts.clip_max_norm);
  losses_ = facts.losses;
  unscale_ = 1;
  record_.clip_coefficient = measured(facts.clip_coefficient);
  record_.grad_norm_at_step = measured(facts.norm_after_clip);
  record_.lr = facts.lr;
  record_.lr_count = facts.lr_count;
  record_.user = facts.user;
  record_.user_count = facts.user_count;
  record_.step_seconds = measured(facts.step_seconds);
  record_.agent_seconds = facts.agent_seconds;
  record_.rank_wait_seconds = measured(facts.rank_wait_seconds);
  record_.phase_seconds = facts.phase_seconds;
  if (facts.tokens >= 0) record_.tokens = static_cast<double>(facts.tokens);
  if (facts.samples >= 0) record_.samples = static_cast<double>(facts.samples);
  if (facts.device_allocated_bytes >= 0) {
    record_.device_allocated_bytes = facts.device_allocated_bytes;
    record_.device_reserved_bytes = facts.device_reserved_bytes;
    record_.device_peak_bytes = facts.device_peak_bytes;
    if (facts.device_limit_bytes >= 0) record_.device_limit_bytes = facts.device_limit_bytes;
    record_.device_allocation_retries = facts.device_allocation_retries;
    record_.device_out_of_memory = facts.device_out_of_memory;
  }
  record_.contiguous_copies = facts.contiguous_copies;
}

void StepBuilder::take_loss(const TensorStats& stats) {
  if (tag_of(stats) != EntryTag::read) return;
  record_.site_measured[index_of(Site::loss)] = true;
  record_.nonfinite[index_of(Site::loss)] = counts_of(stats);
  record_.loss = number_of(stats) / losses_;
  if (stats.nonfinite() > 0) blame(Site::loss, -1, stats);
}

void StepBuilder::take_scale(const TensorStats& stats) {
  if (tag_of(stats) != EntryTag::read || stats.nonfinite() > 0 || !(stats.total() > 0)) return;
  record_.loss_scale = stats.total();
  unscale_ = 1 / stats.total();
}

void StepBuilder::take_user(std::span<const TensorStats> stats) {
  const auto logged = std::min(stats.size(), static_cast<std::size_t>(record_.user_count));
  for (std::size_t i = 0; i < logged; ++i)
    if (tag_of(stats[i]) == EntryTag::read) record_.user[i] = number_of(stats[i]);
}

void StepBuilder::take_gradients(const ReadPlan& plan, std::span<const TensorStats> stats) {
  std::int32_t read = 0;
  std::optional<double> norm;
  std::array<record::JoinedNumber, record::kTensorNumbers.size()> joined;
  // The loss comes before every gradient; among gradients the one nearest the loss, the last, is the
  // first that backward reaches.
  std::int32_t last_bad = -1;
  for (std::size_t i = 0; i < stats.size(); ++i) {
    const auto param = static_cast<std::size_t>(plan.params[i]);
    record::ParamStats& out = detail_.params[param];
    out.state = state_of(stats[i]);
    ++record_.params[static_cast<std::size_t>(out.state)];
    if (tag_of(stats[i]) != EntryTag::read) continue;
    out.grad = numbers_of(stats[i], unscale_);
    if (!plan.shards.empty()) take_shard(plan.shards[i], *out.grad);

    ++read;
    if (has_finite(*out.grad)) add_norm(norm, out.grad->norm);
    for (std::size_t n = 0; n < joined.size(); ++n)
      if (const auto& number = record::kTensorNumbers[n]; number.step != nullptr)
        joined[n].add(number, *out.grad);
    record_.grad_numel += stats[i].numel;
    record_.grad_zero += stats[i].zero;
    record_.grad_subnormal += stats[i].subnormal;
    const bool bad = stats[i].nonfinite() > 0;
    if (out.grad->norm < thresholds_.vanishing && !bad) ++record_.vanishing;
    if (out.grad->norm > thresholds_.exploding || bad) ++record_.exploding;
    if (bad) last_bad = static_cast<std::int32_t>(i);
    add(record_.nonfinite[index_of(Site::grad)], counts_of(stats[i]));
    add(detail_.groups[static_cast<std::size_t>(model_->params[param].group)]
            .nonfinite[index_of(Site::grad)],
        counts_of(stats[i]));
  }
  if (read == 0) return;
  record_.site_measured[index_of(Site::grad)] = true;
  record_.grad_norm = norm;
  for (std::size_t n = 0; n < joined.size(); ++n)
    if (const auto step = record::kTensorNumbers[n].step; step != nullptr)
      record_.*step = joined[n].value();
  if (!norm) record_.grad_norm_at_step.reset();  // clipping may have told one of what it left
  if (!plan.shards.empty()) {  // what it is over all processes, they tell each other
    record_.shard_grad_norm = norm;
    record_.grad_norm.reset();
  }
  // Preset esper_v1: 1 - 0.5 vanishing share - 0.8 exploding share, 0 where anything is non-finite.
  const double count = read;
  const double health = 1 - 0.5 * record_.vanishing / count - 0.8 * record_.exploding / count;
  record_.grad_health = last_bad >= 0 ? 0.0 : std::clamp(health, 0.0, 1.0);
  if (last_bad < 0) return;
  const auto bad = static_cast<std::size_t>(last_bad);
  blame(Site::grad, plan.params[bad], stats[bad]);
  if (plan.shards.empty()) return;
  const auto element =
      detail_.params[static_cast<std::size_t>(plan.params[bad])].grad->first_nonfinite;
  record_.first_by_site[index_of(Site::grad)]->element = element;
  if (record_.first_nonfinite->site == Site::grad) record_.first_nonfinite->element = element;
}

/// Elements are told by their place in the whole parameter where that is known.
void StepBuilder::take_shard(const Shard& shard, record::TensorNumbers& numbers) {
  add_norm(record_.norm_contribution, std::sqrt(shard.share) * numbers.norm);
  if (numbers.first_nonfinite < 0) return;
  numbers.first_nonfinite =
      shard.first_element < 0 ? -1 : numbers.first_nonfinite + shard.first_element;
}

void StepBuilder::take_weights(const ReadPlan& plan, std::span<const TensorStats> weights,
                               std::span<const TensorStats> updates) {
  bool is_read = false;
  std::optional<double> norm;
  std::optional<double> update;
  double updated_norm = 0;  // of the parameters whose update was sampled
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto param = static_cast<std::size_t>(plan.params[i]);
    record::ParamStats& out = detail_.params[param];
    if (tag_of(weights[i]) != EntryTag::read) continue;
    out.weight = numbers_of(weights[i]);
    is_read = true;
    if (has_finite(*out.weight)) add_norm(norm, out.weight->norm);
    add(record_.nonfinite[index_of(Site::weight)], counts_of(weights[i]));
    add(detail_.groups[static_cast<std::size_t>(model_->params[param].group)]
            .nonfinite[index_of(Site::weight)],
        counts_of(weights[i]));
    if (weights[i].nonfinite() > 0) blame(Site::weight, plan.params[i], weights[i]);
    if (updates[i].numel <= 0 || updates[i].nonfinite() > 0) continue;
    const double change = estimated_update(updates[i], weights[i].numel);
    add_norm(update, change);
    updated_norm = std::hypot(updated_norm, out.weight->norm);
    if (out.weight->norm > 0) out.update_ratio = change / out.weight->norm;
  }
  if (!is_read) return;
  record_.site_measured[index_of(Site::weight)] = true;
  record_.weight_norm = norm;
  if (update && updated_norm > 0) record_.update_ratio = *update / updated_norm;
}

/// Where the clipping was done on a device, what it did follows from the norm that it used.
void StepBuilder::take_clipping() {
  if (!clip_max_norm_ || !record_.grad_norm || record_.clip_coefficient) return;
  const auto& bad = record_.nonfinite[index_of(Site::grad)];
  if (std::any_of(bad.begin(), bad.end(), [](std::int64_t count) { return count > 0; })) return;
  const double coefficient = kernels::clip_coefficient(*record_.grad_norm, *clip_max_norm_);
  record_.clip_coefficient = coefficient;
  record_.grad_norm_at_step = *record_.grad_norm * coefficient;
}

void StepBuilder::take_global_norm(record::StepRecord& record, double norm,
                                   const StepFacts& facts) noexcept {
  record.grad_norm = norm;
  const auto& bad = record.nonfinite[index_of(Site::grad)];
  if (std::any_of(bad.begin(), bad.end(), [](std::int64_t count) { return count > 0; })) return;
  if (const auto max_norm = measured(facts.clip_max_norm)) {
    record.clip_coefficient = kernels::clip_coefficient(norm, *max_norm);
    record.grad_norm_at_step = norm * *record.clip_coefficient;
  } else if (facts.read_at == record::ReadAt::optimizer) {
    record.grad_norm_at_step = norm;
  }
}

void StepBuilder::sum_up_groups(const ReadPlan& plan) {
  struct Sums {
    std::array<record::JoinedNumber, record::kTensorNumbers.size()> numbers;
    double updated_norm = 0;
    std::optional<double> update;
  };
  std::vector<Sums> sums(detail_.groups.size());
  for (const std::int32_t index : plan.params) {
    const auto i = static_cast<std::size_t>(index);
    const record::ParamStats& param = detail_.params[i];
    const auto g = static_cast<std::size_t>(model_->params[i].group);
    record::GroupStats& group = detail_.groups[g];
    if (param.grad) ++group.params;
    for (std::size_t n = 0; n < record::kTensorNumbers.size(); ++n) {
      const record::TensorNumber& number = record::kTensorNumbers[n];
      const auto& tensor = number.site == Site::grad ? param.grad : param.weight;
      if (tensor && number.join != record::Join::update) sums[g].numbers[n].add(number, *tensor);
    }
    if (param.weight && param.update_ratio) {
      add_norm(sums[g].update, *param.update_ratio * param.weight->norm);
      sums[g].updated_norm = std::hypot(sums[g].updated_norm, param.weight->norm);
    }
  }
  for (std::size_t g = 0; g < sums.size(); ++g) {
    for (std::size_t n = 0; n < record::kTensorNumbers.size(); ++n)
      if (record::kTensorNumbers[n].join != record::Join::update)
        detail_.groups[g].*record::kTensorNumbers[n].group = sums[g].numbers[n].value();
    if (sums[g].update && sums[g].updated_norm > 0)
      detail_.groups[g].update_ratio = *sums[g].update / sums[g].updated_norm;
  }
}

void StepBuilder::blame(Site site, std::int32_t param, const TensorStats& stats) {
  record::FirstNonfinite first;
  first.site = site;
  first.param = param;
  first.element = stats.first_nonfinite;
  first.kind = static_cast<record::NonfiniteKind>(std::max<int>(stats.first_kind, 0));
  auto& of_site = record_.first_by_site[index_of(site)];
  if (!of_site) of_site = first;
  if (!record_.first_nonfinite) record_.first_nonfinite = first;
}

}  // namespace gradvane::collectors
