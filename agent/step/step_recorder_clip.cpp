// Clipping with the norm that the pass reads: StepRecorder's part for Agent::clip_grad_norm.
//
// A norm that gradients are scaled by is always read by the call that scales them. Version counters do
// not show every write (collectives, `.data`, kernels of the program's own), so an earlier read of the step
// may be of other gradients. What is only reported may come from the earlier read.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "agent/step/gradient_clip.hpp"
#include "agent/step/step_recorder.hpp"
#include "collectors/steps/clip_coefficient.hpp"

namespace gradvane::agent {

using collectors::EntryTag;

at::Tensor StepRecorder::clip(int optimizer, double max_norm, bool just_read) {
  const collectors::OwnCalls own(ledger_);
  catch_up();
  const int begin = std::max(optimizer, 0);
  const int end = optimizer < 0 ? watch_.optimizers() : optimizer + 1;
  bool is_current = just_read && optimizer >= 0 && at(optimizer).has_read;
  bool any_on_device = false;
  bool all_ours = true;  // The pass can read all that is to be clipped.
  std::vector<at::Tensor> gradients;
  for (int o = begin; o < end; ++o) {
    if (enabled_ && !at(o).has_read && optimizer >= 0) {
      read_gradients(o, record::ReadAt::clip);
      is_current = at(o).has_read;
    } else if (!is_current) {
      follow_changes(o);
    }
    all_ours &= !is_sharded(o);
    for (const at::Tensor& param : watch_.params(o)) {
      if (!param.grad().defined()) continue;
      // A frozen parameter may still have a gradient: torch clips it, and the pass does not read it.
      all_ours &= param.requires_grad();
      any_on_device |= !param.grad().is_cpu();
      gradients.push_back(param.grad());
    }
  }
  if (!any_on_device || !all_ours)
    return clip_on_host(begin, end, max_norm, gradients, is_current, all_ours);
  const bool is_reported =
      optimizer >= 0 && device_covers(optimizer) && !at(optimizer).facts.gradients_scaled;
  at::Tensor norm;
  if (is_current && device_covers(optimizer)) norm = at(optimizer).device_gradients.norm();
  norm = norm.defined() ? norm.clone() : norm_with_torch(gradients);
  clip_to_norm(gradients, norm, max_norm);
  if (is_reported) at(optimizer).facts.clip_max_norm = max_norm;
  return norm;
}

bool StepRecorder::is_sharded(int optimizer) const noexcept {
  return watch_.plan(optimizer) != nullptr && !watch_.plan(optimizer)->shards.empty();
}

at::ScalarType StepRecorder::norm_type(int optimizer) const {
  return norm_type_of(watch_.params(optimizer));
}

/// Whether the read of this step covers all gradients, on one device, and they have not been seen to change.
bool StepRecorder::device_covers(int optimizer) const noexcept {
  const Watched& watched = at(optimizer);
  return watched.has_read && !watched.on_host && watched.device_reads == 1 && watched.all_read &&
         gradients_unchanged(optimizer);
}

/// Reads gradients on a CPU once more, for their norm. What has gone bad since the read of the step is
/// told: after the clip it could not be seen any more.
void StepRecorder::read_once_more(int optimizer) {
  follow_changes(optimizer);
  Watched& watched = at(optimizer);
  const bool could_tell = watched.has_read && enabled_ && !watched.facts.has_scaler &&
                          watched.device_reads == 0 && !is_bad(watched);
  if (!scan_gradients(optimizer)) throw std::bad_alloc();
  if (could_tell && is_bad(watched))
    watched.facts.grad_sequence = handoff_.publish(
        watch_.plan(optimizer)->id, watched.gradient_sites, watched.gradients.stats());
}

/// The norm of all gradients, which are on CPUs, as they are now; absent where one cannot be read. With
/// `is_current` they have just been read.
std::optional<double> StepRecorder::host_norm(int begin, int end, bool is_current) {
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

at::Tensor StepRecorder::norm(int optimizer) {
  const collectors::OwnCalls own(ledger_);
  const bool had_read = at(optimizer).has_read;
  if (enabled_) read_gradients(optimizer, record::ReadAt::backward);
  if (is_sharded(optimizer)) return {};
  const bool is_current = !had_read && at(optimizer).has_read;
  std::vector<at::Tensor> on_device;
  for (const at::Tensor& param : watch_.params(optimizer))
    if (param.requires_grad() && param.grad().defined() && !param.grad().is_cpu())
      on_device.push_back(param.grad());
  if (!on_device.empty()) {
    const Watched& watched = at(optimizer);
    if (watched.on_host || watched.device_reads != 1 || !watched.all_read) return {};
    const at::Tensor norm = is_current ? watched.device_gradients.norm() : at::Tensor();
    return norm.defined() ? norm.clone() : norm_with_torch(on_device);
  }
  const auto norm = host_norm(optimizer, optimizer + 1, is_current);
  return norm ? scalar_tensor(*norm) : at::Tensor();
}

/// Also where torch's operators have to do it, on any device.
at::Tensor StepRecorder::clip_on_host(int begin, int end, double max_norm,
                                      const std::vector<at::Tensor>& gradients, bool is_current,
                                      bool all_ours) {
  const auto norm = all_ours ? host_norm(begin, end, is_current) : std::nullopt;
  if (!norm) {
    at::Tensor clipped = norm_with_torch(gradients);
    clip_to_norm(gradients, clipped, max_norm);
    for (int o = begin; o < end; ++o) stamp_gradients(o);
    return clipped;
  }
  const double coefficient = collectors::clip_coefficient(*norm, max_norm);
  scale_gradients(gradients, coefficient);
  for (int o = begin; o < end; ++o) {
    stamp_gradients(o);
    // What is still scaled was clipped against another norm than that of the record.
    if (!std::isfinite(*norm) || at(o).facts.gradients_scaled) continue;
    at(o).facts.clip_coefficient = coefficient;
    at(o).facts.norm_after_clip = *norm * coefficient;
  }
  return scalar_tensor(*norm);
}

}  // namespace gradvane::agent
