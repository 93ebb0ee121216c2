#include "agent/step/optimizer_state.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace gradvane::agent {

/// A few, spread over the optimizer's parameters: a backward pass that touches none of them does
/// not belong to this optimizer. Every pass looks at those of all optimizers, mostly past the
/// caches: where there are many optimizers, it looks at fewer entries of each.
void SeenPasses::choose_entries(std::size_t count, int optimizers) {
  constexpr std::size_t kEntries = 8;
  constexpr std::size_t kOfAll = 1024;
  const std::size_t each = std::clamp(kOfAll / static_cast<std::size_t>(std::max(optimizers, 1)),
                                      std::size_t{1}, kEntries);
  const std::size_t chosen = std::min(each, count);
  entries.clear();
  for (std::size_t k = 0; k < chosen; ++k) entries.push_back(k * count / chosen);
  before_backward.assign(entries.size(), GradientStamp{});
}

void OptimizerState::make_room(const std::vector<collectors::Tensor>& params, std::uint64_t plan_id,
                               const Options& options, bool enabled, int optimizers) {
  const std::size_t count = params.size();
  gradients.resize(count + 2);  // the loss, and what it was scaled by
  weights.resize(count);
  sample.resize(params, options.update_sample);
  if (enabled) device_sample.resize(params, options.update_sample);
  gradient_sites.assign(count, kernels::Site::grad);
  gradient_sites.push_back(kernels::Site::loss);
  gradient_sites.push_back(kernels::Site::scalar);
  weight_sites.assign(count, kernels::Site::weight);
  weight_sites.resize(2 * count, kernels::Site::scalar);
  device_gradients.resize(gradient_sites, options.ring_slots, plan_id, params);
  device_weights.resize(weight_sites, options.ring_slots, plan_id, params);
  if (enabled) device_gradients.make_ahead();
  if (enabled && options.weight_every > 0) {
    std::vector<collectors::Tensor> changes(count);
    for (std::size_t i = 0; i < count; ++i) changes[i] = device_sample.room_for_changes(i);
    device_weights.make_ahead(changes);
  }
  weight_stats.assign(2 * count, kernels::TensorStats{});
  stamps.assign(count, GradientStamp{});
  parts.clear();
  entries.clear();
  passes.choose_entries(count, optimizers);
}

void OptimizerState::release() noexcept try {
  gradients = {};
  gradients.resize(2);  // the loss, and what it was scaled by
  gradient_sites = {kernels::Site::loss, kernels::Site::scalar};
  device_gradients.resize(gradient_sites, 0, 0);
  device_weights.resize({}, 0, 0);
  weights = {};
  weight_sites = {};
  sample = {};
  device_sample.resize({}, 0);
  weight_stats = {};
  stamps = {};
  parts = {};
  entries = {};
  passes.entries = {};
  passes.before_backward = {};
} catch (...) {  // no memory to let go of some: it stays as it is
}

void OptimizerState::forget_read() noexcept {
  has_read = false;
  loss_in_gradients = false;
  facts = collectors::StepFacts{};
  device_reads = 0;
  read_norm = -1;
  own_bad.reset();
  left_as = 0;
  devices_waited = 0;
  found_on_devices.reset();
  reads_norm_again = false;
  clips = 0;
  scale = 0;
  device_scale.reset();
}

bool OptimizerState::is_bad() const noexcept {
  return any_nonfinite(gradients.stats().first(stamps.size()));
}

bool any_nonfinite(std::span<const kernels::TensorStats> entries) noexcept {
  return std::ranges::any_of(entries, [](const auto& stats) { return stats.nonfinite() > 0; });
}

double norm_of(std::span<const kernels::TensorStats> entries,
               std::span<const collectors::Shard> shards) noexcept {
  double norm = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (collectors::tag_of(entries[i]) != collectors::EntryTag::read) continue;
    const double share = i < shards.size() ? shards[i].share : 1;
    norm = std::hypot(norm, std::sqrt(share) * entries[i].norm());
  }
  return norm;
}

}  // namespace gradvane::agent
