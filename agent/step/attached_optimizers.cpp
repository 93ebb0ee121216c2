#include "agent/step/attached_optimizers.hpp"

#include <algorithm>
#include <utility>

namespace gradvane::agent {
namespace {

constexpr int kFew = 8;  ///< optimizers up to which every attach() makes the plans at once

}  // namespace

AttachedOptimizers::AttachedOptimizers(const Options& options, bool enabled,
                                       collectors::Handoff& handoff, StepLosses& losses,
                                       UserMetrics& user)
    : options_(options),
      enabled_(enabled),
      handoff_(handoff),
      losses_(losses),
      user_(user),
      watch_(options.groups, options.max_groups) {}

int AttachedOptimizers::attach(std::unique_ptr<collectors::ModelSource> source) {
  const int index = watch_.add_later(std::move(source));
  states_.push_back(std::make_unique<OptimizerState>());
  is_stale_ = true;
  if (watch_.live() > kFew && watch_.live() < 2 * planned_) return index;
  try {
    rebuild();
  } catch (...) {  // nothing was attached
    watch_.remove(index);
    throw;
  }
  return index;
}

void AttachedOptimizers::release(int optimizer) noexcept {
  at(optimizer).release();
  is_stale_ = true;
  if (watch_.live() <= kFew) make_plans();
}

int AttachedOptimizers::only() const noexcept {
  int only = -1;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o)) continue;
    if (only >= 0) return -1;
    only = o;
  }
  return only;
}

bool AttachedOptimizers::is_capturing() const noexcept {
  return std::ranges::any_of(
      states_, [](const auto& state) { return state->device_gradients.is_capturing(); });
}

void AttachedOptimizers::make_plans() noexcept try {
  rebuild();
} catch (...) {  // no memory: the next call tries again
  is_stale_ = true;
}

void AttachedOptimizers::rebuild() {
  watch_.rebuild();
  std::vector<std::shared_ptr<const collectors::ReadPlan>> plans;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o)) continue;
    at(o).make_room(watch_.local_params(o), watch_.plan(o)->id, options_, enabled_, watch_.live());
    plans.push_back(watch_.plan(o));
  }
  const std::uint64_t any_plan = plans.empty() ? 0 : plans.front()->id;
  losses_.resize(options_.ring_slots, any_plan);
  user_.resize(options_.ring_slots, any_plan);
  handoff_.set_plans(plans, std::max(2 * watch_.largest_plan(), watch_.largest_plan() + 2));
  planned_ = watch_.live();
  is_stale_ = false;
}

void AttachedOptimizers::follow_changes(int optimizer, bool thorough, bool all) noexcept try {
  const bool differs = thorough && (all ? watch_.changed_anywhere() : watch_.differs(optimizer));
  if (!has_failed_ && !watch_.changed(optimizer) && !differs) return;
  has_failed_ = false;
  rebuild();
} catch (...) {  // no memory: the old plan goes on, the next step tries again
  has_failed_ = true;
}

}  // namespace gradvane::agent
