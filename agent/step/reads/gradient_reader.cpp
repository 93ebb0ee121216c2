#include "agent/step/reads/gradient_reader.hpp"

#include <algorithm>
#include <thread>

#include "agent/step/facts/device_sources.hpp"
#include "collectors/tensors/tensor_view.hpp"

namespace gradvane::agent {

using collectors::EntryTag;
using collectors::SlotRole;
namespace {

bool is_elsewhere(const collectors::Tensor& gradient) noexcept {
  return gradient.defined() && !collectors::is_on_cpu(gradient);
}

}  // namespace

/// Each step takes the cheap look. The walk over everything is taken only where weights are read
/// anyway, and by one optimizer for all.
void GradientReader::follow_changes(int optimizer) noexcept {
  optimizers_.catch_up();
  const bool thorough = optimizers_.is_enabled() && weights_.is_due(at(optimizer));
  optimizers_.follow_changes(optimizer, thorough, run_.leads(optimizer));
}

void GradientReader::read(int optimizer, record::ReadAt where) noexcept {
  if (!optimizers_.is_enabled() || at(optimizer).has_read) return;
  follow_changes(optimizer);
  run_.start(optimizer);
  // Between the optimizer's own hook and the update nothing writes.
  if (scan(optimizer, where != record::ReadAt::optimizer)) publish(optimizer, where);
}

bool GradientReader::scan(int optimizer, bool stamps) noexcept {
  OptimizerState& state = at(optimizer);
  const std::vector<collectors::Tensor>& params = watch_.params(optimizer);
  if (state.stamps.size() != params.size()) return false;  // no memory for a grown model
  const Losses& losses = losses_.of(state.losses);
  state.on_host = losses.on_host() || state.scale > 0;
  state.all_read = true;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const bool frozen = !collectors::requires_grad(params[i]);
    const collectors::Tensor& gradient = watch_.gradient(optimizer, i);
    if (stamps) state.stamps[i] = GradientStamp::of(gradient);
    const EntryTag tag = frozen               ? EntryTag::frozen
                         : gradient.defined() ? EntryTag::read
                                              : EntryTag::missing;
    const bool on_host = tag == EntryTag::read && collectors::is_on_cpu(gradient);
    if (tag == EntryTag::read && !on_host && state.device_gradients.takes(gradient)) {
      state.all_read &= state.device_gradients.set(i, gradient) != EntryTag::unsupported;
      state.gradients.set(i, gradient, EntryTag::elsewhere);
      continue;
    }
    state.gradients.set(i, gradient, tag);
    if (tag == EntryTag::read) {
      state.on_host = true;
      state.all_read &= on_host;
    } else {
      state.device_gradients.leave_out(i, tag);
    }
  }
  if (losses.on_host()) state.loss_value = losses.host_value();
  state.gradients.set_scalar(params.size(), losses.on_host() ? &state.loss_value : nullptr);
  if (losses.on_device()) (void)state.device_gradients.set(params.size(), losses.device_sum());
  state.gradients.set_scalar(params.size() + 1, state.scale > 0 ? &state.scale : nullptr);
  if (state.device_scale.defined())
    (void)state.device_gradients.set(params.size() + 1, state.device_scale);
  const bool has_read = state.gradients.read();
  watch_.let_go_of_gradients(optimizer);
  return has_read;
}

void GradientReader::publish(int optimizer, record::ReadAt where) noexcept {
  OptimizerState& state = at(optimizer);
  state.has_read = true;
  state.reader = std::this_thread::get_id();
  state.loss_in_gradients = losses_.of(state.losses).any();
  if (keeps_norm_) state.read_norm = norm_of_read(optimizer);
  collectors::StepFacts& facts = state.facts;
  facts.read_at = where;
  facts.contiguous_copies += state.gradients.copies();
  read_on_devices(state);
  // What devices hold is in their own slots, and these say too what is missing.
  if (!state.on_host && state.device_reads > 0) return;
  publish_again(optimizer);
}

void GradientReader::publish_again(int optimizer) noexcept {
  OptimizerState& state = at(optimizer);
  state.facts.reads.set_on_host(
      SlotRole::gradients,
      handoff_.publish(watch_.plan(optimizer)->id, state.gradient_sites, state.gradients.stats()));
}

void GradientReader::read_on_devices(OptimizerState& state) noexcept {
  collectors::DeviceReads& reads = state.device_gradients;
  state.device_reads = agent::read_on_devices(reads, SlotRole::gradients, state.facts, handoff_);
  state.all_read &= reads.all_read();
  state.facts.contiguous_copies += reads.copies();
  state.facts.losses = losses_.of(state.losses).device_divisor();
}

void GradientReader::note_scale(int optimizer, const collectors::Tensor& scale,
                                bool is_scaled) noexcept try {
  OptimizerState& state = at(optimizer);
  if (state.has_read) return;
  state.facts.has_scaler = true;
  state.facts.gradients_scaled = is_scaled;
  if (state.device_gradients.takes(scale)) {
    state.device_scale = scale;
  } else if (const auto value = collectors::scalar_value(scale); value && *value > 0) {
    state.scale = *value;
  }
} catch (...) {  // without the scale the gradients are reported as they are
}

void GradientReader::stamp(int optimizer) noexcept {
  std::vector<GradientStamp>& stamps = at(optimizer).stamps;
  for (std::size_t i = 0; i < std::min(watch_.params(optimizer).size(), stamps.size()); ++i)
    stamps[i] = GradientStamp::of(watch_.gradient_now(optimizer, i));
}

bool GradientReader::is_unchanged(int optimizer) const noexcept {
  const std::vector<collectors::Tensor>& params = watch_.params(optimizer);
  const OptimizerState& state = optimizers_.at(optimizer);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const collectors::Tensor gradient = watch_.gradient_now(optimizer, i);
    const GradientStamp stamp = GradientStamp::of(gradient);
    if (gradient.defined() && !stamp.counts_writes()) return false;
    if (stamp != state.stamps[i]) return false;
  }
  return true;
}

/// norm_of() what the last scan() read on CPUs, unscaled.
double GradientReader::norm_of_read(int optimizer) noexcept {
  OptimizerState& state = at(optimizer);
  const std::size_t params = watch_.params(optimizer).size();
  const double norm =
      norm_of(state.gradients.stats().first(params), watch_.plan(optimizer)->shards);
  return state.facts.gradients_scaled && state.scale > 0 ? norm / state.scale : norm;
}

void GradientReader::look_again(int optimizer) noexcept {
  OptimizerState& state = at(optimizer);
  const std::vector<collectors::Tensor>& params = watch_.params(optimizer);
  if (!state.has_read || state.facts.has_scaler || state.device_reads > 0 ||
      state.stamps.size() != params.size())
    return;
  if (!state.reads_norm_again && is_unchanged(optimizer)) return;
  const bool was_bad = state.is_bad();
  for (std::size_t i = 0; i < params.size(); ++i)
    if (is_elsewhere(watch_.gradient_now(optimizer, i))) return;
  // What the first read found is in the ring by now: its reader is free.
  if (!scan(optimizer)) return;
  state.reads_norm_again = false;
  const double norm = norm_of_read(optimizer);
  const bool is_whole = state.all_read && watch_.plan(optimizer)->shards.empty();
  if (is_whole) state.facts.norm_after_clip = norm;
  if (!was_bad && state.is_bad()) publish_again(optimizer);
}

std::optional<FoundInGradients> GradientReader::found_for_scaler(int optimizer) {
  const OptimizerState& state = at(optimizer);
  const std::size_t params = watch_.params(optimizer).size();
  const bool is_scalers = state.has_read && state.facts.read_at == record::ReadAt::scaler;
  if (!is_scalers || !state.all_read || state.facts.captured || state.stamps.size() != params ||
      !watch_.plan(optimizer)->shards.empty())
    return std::nullopt;
  FoundInGradients found;
  for (std::size_t i = 0; i < params; ++i) {
    const kernels::TensorStats& stats = state.gradients.stats()[i];
    const EntryTag tag = collectors::tag_of(stats);
    const bool is_left_out = tag == EntryTag::frozen && watch_.gradient_now(optimizer, i).defined();
    if (tag == EntryTag::unsupported || is_left_out) return std::nullopt;
    if (tag == EntryTag::read)
      found.on_host = found.on_host.value_or(false) || stats.nonfinite() > 0;
  }
  if (state.device_reads > 0) found.on_devices = state.device_gradients.nonfinite_gradients();
  return found;
}

void GradientReader::after_evaluation(int optimizer) noexcept {
  OptimizerState& state = at(optimizer);
  if (!optimizers_.is_enabled() || state.has_read) return;
  follow_changes(optimizer);
  run_.start(optimizer);
  for (const collectors::Tensor& param : watch_.params(optimizer))
    if (is_elsewhere(collectors::gradient_of(param))) return;
  if (scan(optimizer) && state.is_bad()) publish(optimizer, record::ReadAt::backward);
}

}  // namespace gradvane::agent
