// Clipping with the norm that the pass reads: StepRecorder's part for Agent::clip_grad_norm.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "agent/gradient_clip.hpp"
#include "agent/step_recorder.hpp"
#include "collectors/clip_coefficient.hpp"

namespace gradvane::agent {

using collectors::EntryTag;

at::Tensor StepRecorder::clip(int optimizer, double max_norm) {
  const collectors::OwnCalls own(ledger_);
  const int begin = std::max(optimizer, 0);
  const int end = optimizer < 0 ? watch_.optimizers() : optimizer + 1;
  std::vector<at::Tensor> gradients;
  bool any_on_device = false;
  for (int o = begin; o < end; ++o) {
    if (enabled_ && !at(o).has_read && optimizer >= 0) read_gradients(o, record::ReadAt::clip);
    for (const at::Tensor& param : watch_.params(o)) {
      if (!param.requires_grad() || !param.grad().defined()) continue;
      gradients.push_back(param.grad());
      any_on_device |= !param.grad().is_cpu();
    }
  }
  if (!any_on_device) return clip_on_host(begin, end, max_norm, gradients);
  const at::Tensor norm = device_norm(begin, end);
  if (!norm.defined()) return clip_with_torch(gradients, max_norm);
  if (optimizer >= 0) at(optimizer).facts.clip_max_norm = max_norm;
  return clip_on_device(gradients, norm, max_norm);
}

/// The norm that the pass left on the device where all gradients lie; undefined where it does not
/// cover them as they are now.
at::Tensor StepRecorder::device_norm(int begin, int end) const {
  if (end - begin != 1) return {};
  const Watched& watched = at(begin);
  const bool covered = watched.has_read && !watched.on_host && watched.device_reads == 1 &&
                       watched.all_read && gradients_unchanged(begin);
  return covered ? watched.device_gradients.norm() : at::Tensor();
}

/// The norm of all gradients, which are on CPUs, as they are now; absent where one cannot be read.
std::optional<double> StepRecorder::host_norm(int begin, int end) {
  double norm = 0;
  bool all_read = true;
  for (int o = begin; o < end; ++o) {
    // What was read before and written to since has another norm now.
    if (!at(o).has_read || !gradients_unchanged(o)) {
      follow_changes(o);
      if (!scan_gradients(o)) throw std::bad_alloc();
    }
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
  if (enabled_) read_gradients(optimizer, record::ReadAt::backward);
  const auto on_device = [](const at::Tensor& param) {
    return param.requires_grad() && param.grad().defined() && !param.grad().is_cpu();
  };
  if (std::ranges::any_of(watch_.params(optimizer), on_device)) {
    const at::Tensor norm = device_norm(optimizer, optimizer + 1);
    return norm.defined() ? norm.clone() : norm;
  }
  const auto norm = host_norm(optimizer, optimizer + 1);
  return norm ? scalar_tensor(*norm) : at::Tensor();
}

at::Tensor StepRecorder::clip_on_host(int begin, int end, double max_norm,
                                      const std::vector<at::Tensor>& gradients) {
  const auto norm = host_norm(begin, end);
  if (!norm) {
    const at::Tensor clipped = clip_with_torch(gradients, max_norm);
    for (int o = begin; o < end; ++o) stamp_gradients(o);
    return clipped;
  }
  const double coefficient = collectors::clip_coefficient(*norm, max_norm);
  scale_gradients(gradients, coefficient);
  for (int o = begin; o < end; ++o) {
    stamp_gradients(o);
    if (!std::isfinite(*norm)) continue;
    at(o).facts.clip_coefficient = coefficient;
    at(o).facts.norm_after_clip = *norm * coefficient;
  }
  return scalar_tensor(*norm);
}

}  // namespace gradvane::agent
