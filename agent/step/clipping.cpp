#include "agent/step/clipping.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "agent/step/gradient_clip.hpp"
#include "kernels/clip_coefficient.hpp"
#include "record/hypot.hpp"

namespace gradvane::agent {

using collectors::EntryTag;

collectors::Tensor Clipping::clip(int optimizer, double max_norm, bool just_read) {
  optimizers_.catch_up();
  const int begin = std::max(optimizer, 0);
  const int end = optimizer < 0 ? watch_.optimizers() : optimizer + 1;
  bool is_current = just_read && optimizer >= 0 && at(optimizer).has_read;
  bool any_on_device = false;
  bool all_ours = true;  // The pass can read all that is to be clipped.
  std::vector<collectors::Tensor> gradients;
  for (int o = begin; o < end; ++o) {
    if (optimizers_.is_enabled() && !at(o).has_read && optimizer >= 0) {
      gradients_.read(o, record::ReadAt::clip);
      is_current = at(o).has_read;
    } else if (!is_current) {
      gradients_.follow_changes(o);
    }
    all_ours &= !is_sharded(o);
    for (const collectors::Tensor& param : watch_.params(o)) {
      collectors::Tensor gradient = collectors::gradient_of(param);
      if (!gradient.defined()) continue;
      // A frozen parameter may still have a gradient: torch clips it, and the pass does not read
      // it.
      all_ours &= collectors::requires_grad(param);
      any_on_device |= !collectors::is_on_cpu(gradient);
      gradients.push_back(std::move(gradient));
    }
  }
  if (!any_on_device || !all_ours)
    return clip_on_host(begin, end, max_norm, gradients, is_current, all_ours);
  const bool is_reported =
      optimizer >= 0 && device_covers(optimizer) && !at(optimizer).facts.gradients_scaled;
  collectors::Tensor norm;
  if (is_current && device_covers(optimizer)) norm = at(optimizer).device_gradients.norm();
  const bool is_ours = norm.defined();
  norm = is_ours ? collectors::scalar_copy(norm) : norm_with_torch(gradients);
  if (!is_ours || !clip_on_device(optimizer, max_norm, gradients))
    clip_to_norm(gradients, norm, max_norm);
  if (is_reported) at(optimizer).facts.clip_max_norm = max_norm;
  return norm;
}

/// By the norm that the read left on the device, which covers all of them.
bool Clipping::clip_on_device(int optimizer, double max_norm,
                              const std::vector<collectors::Tensor>& gradients) {
  collectors::DeviceReads& reads = at(optimizer).device_gradients;
  for (std::size_t i = 0; i < watch_.params(optimizer).size(); ++i)
    if (const collectors::Tensor gradient = watch_.gradient_now(optimizer, i); gradient.defined())
      (void)reads.set(i, gradient);
  if (!reads.clip(gradients.size(), max_norm)) return false;
  note_written(gradients);
  return true;
}

bool Clipping::is_sharded(int optimizer) const noexcept {
  return watch_.plan(optimizer) != nullptr && !watch_.plan(optimizer)->shards.empty();
}

/// Whether the read of this step covers all gradients, on one device, and they have not been seen
/// to change.
bool Clipping::device_covers(int optimizer) const noexcept {
  const OptimizerState& state = optimizers_.at(optimizer);
  return state.has_read && !state.on_host && state.device_reads == 1 && state.all_read &&
         gradients_.is_unchanged(optimizer);
}

/// Reads gradients on a CPU once more, for their norm. What has gone bad since the read of the step
/// is reported now: after the clip it could not be seen any more.
void Clipping::read_once_more(int optimizer) {
  gradients_.follow_changes(optimizer);
  OptimizerState& state = at(optimizer);
  const bool was_good = state.has_read && optimizers_.is_enabled() && !state.facts.has_scaler &&
                        state.device_reads == 0 && !state.is_bad();
  if (!gradients_.scan(optimizer)) throw std::bad_alloc();
  if (was_good && state.is_bad()) gradients_.publish_again(optimizer);
}

/// The norm of all gradients, which are on CPUs, as they are now; absent where one cannot be read.
/// With `is_current` they have just been read.
std::optional<double> Clipping::host_norm(int begin, int end, bool is_current) {
  double norm = 0;
  bool all_read = true;
  for (int o = begin; o < end; ++o) {
    if (!is_current) read_once_more(o);
    const auto stats = at(o).gradients.stats();
    for (std::size_t i = 0; i < watch_.params(o).size(); ++i) {
      const EntryTag tag = collectors::tag_of(stats[i]);
      if (tag == EntryTag::unsupported) all_read = false;
      if (tag != EntryTag::read) continue;
      norm = std::hypot(norm, stats[i].norm());
      if (stats[i].nan > 0) norm = std::numeric_limits<double>::quiet_NaN();
      if (stats[i].pos_inf + stats[i].neg_inf > 0 && !std::isnan(norm))
        norm = std::numeric_limits<double>::infinity();
    }
  }
  return all_read ? std::optional(norm) : std::nullopt;
}

void Clipping::note_clip(int optimizer, double max_norm) noexcept {
  OptimizerState& state = at(optimizer);
  if (!state.has_read || ++state.clips > 1 || state.facts.gradients_scaled) {
    state.facts.clip_max_norm = collectors::kNotMeasured;
    note_other_clip(optimizer);
    return;
  }
  state.facts.clip_max_norm = max_norm;
  gradients_.stamp(optimizer);
}

collectors::Tensor Clipping::norm(int optimizer) {
  const bool had_read = at(optimizer).has_read;
  if (optimizers_.is_enabled()) gradients_.read(optimizer, record::ReadAt::backward);
  if (is_sharded(optimizer)) return {};
  const bool is_current = !had_read && at(optimizer).has_read;
  std::vector<collectors::Tensor> on_device;
  for (const collectors::Tensor& param : watch_.params(optimizer))
    if (collectors::Tensor gradient = collectors::gradient_of(param);
        collectors::requires_grad(param) && gradient.defined() && !collectors::is_on_cpu(gradient))
      on_device.push_back(std::move(gradient));
  if (!on_device.empty()) {
    const OptimizerState& state = optimizers_.at(optimizer);
    if (state.on_host || state.device_reads != 1 || !state.all_read) return {};
    const collectors::Tensor norm =
        is_current ? state.device_gradients.norm() : collectors::Tensor();
    return norm.defined() ? collectors::scalar_copy(norm) : norm_with_torch(on_device);
  }
  const auto norm = host_norm(optimizer, optimizer + 1, is_current);
  return norm ? scalar_tensor(*norm) : collectors::Tensor();
}

/// Also where torch's operators have to do it, on any device.
collectors::Tensor Clipping::clip_on_host(int begin, int end, double max_norm,
                                          const std::vector<collectors::Tensor>& gradients,
                                          bool is_current, bool all_ours) {
  const auto norm = all_ours ? host_norm(begin, end, is_current) : std::nullopt;
  if (!norm) {
    collectors::Tensor clipped = norm_with_torch(gradients);
    clip_to_norm(gradients, clipped, max_norm);
    for (int o = begin; o < end; ++o) gradients_.stamp(o);
    return clipped;
  }
  const double coefficient = kernels::clip_coefficient(*norm, max_norm);
  scale_gradients(gradients, coefficient);
  for (int o = begin; o < end; ++o) {
    gradients_.stamp(o);
    // What is still scaled was clipped against another norm than that of the record.
    if (!std::isfinite(*norm) || at(o).facts.gradients_scaled) continue;
    at(o).facts.clip_coefficient = coefficient;
    at(o).facts.norm_after_clip = *norm * coefficient;
  }
  return scalar_tensor(*norm);
}

}  // namespace gradvane::agent
