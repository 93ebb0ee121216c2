#pragma once
// The optimizers that are attached: their parameters, their state, and the plans by which they are
// read.
#include <memory>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/step/facts/step_losses.hpp"
#include "agent/step/facts/user_metrics.hpp"
#include "agent/step/optimizer_state.hpp"
#include "collectors/model/model_watch.hpp"
#include "collectors/steps/handoff.hpp"

namespace gradvane::agent {

/// Makes the plans, gives everyone who reads room for them, and makes them known to the worker.
/// Training thread only.
class AttachedOptimizers {
 public:
  /// `enabled` false: nothing is published.
  AttachedOptimizers(const Options& options, bool enabled, collectors::Handoff& handoff,
                     StepLosses& losses, UserMetrics& user);

  /// Returns the optimizer's index. Throws std::invalid_argument and std::bad_alloc.
  int attach(std::unique_ptr<collectors::ModelSource> source);
  /// Lets go of the optimizer's parameters; release() then frees the room for them.
  void remove(int optimizer) noexcept { watch_.remove(optimizer); }
  void release(int optimizer) noexcept;
  /// The optimizer that calls without one mean: the only one attached, else -1.
  [[nodiscard]] int only() const noexcept;

  /// Makes plans for what was attached or removed since they were made.
  void catch_up() noexcept {
    if (is_stale_) [[unlikely]]
      make_plans();
  }
  /// Makes plans if the parameters are no longer those of the plans.
  /// @param thorough   asks for every parameter's name, dtype, shape and device too,
  /// @param all        and of all optimizers
  void follow_changes(int optimizer, bool thorough, bool all) noexcept;

  [[nodiscard]] OptimizerState& at(int optimizer) noexcept {
    return *states_[static_cast<std::size_t>(optimizer)];
  }
  [[nodiscard]] const OptimizerState& at(int optimizer) const noexcept {
    return *states_[static_cast<std::size_t>(optimizer)];
  }
  /// Whether the gradients of one were last read on a device that captures a graph now.
  [[nodiscard]] bool is_capturing() const noexcept;
  [[nodiscard]] collectors::ModelWatch& watch() noexcept { return watch_; }
  [[nodiscard]] const collectors::ModelWatch& watch() const noexcept { return watch_; }

  [[nodiscard]] bool is_enabled() const noexcept { return enabled_; }
  void disable() noexcept { enabled_ = false; }

 private:
  void make_plans() noexcept;
  void rebuild();

  const Options& options_;
  bool enabled_;
  collectors::Handoff& handoff_;
  StepLosses& losses_;
  UserMetrics& user_;
  collectors::ModelWatch watch_;
  std::vector<std::unique_ptr<OptimizerState>> states_;
  bool is_stale_ = false;    ///< attached or removed since the plans were made
  bool has_failed_ = false;  ///< to make plans: there was no memory
  int planned_ = 0;          ///< optimizers that the plans were made for
};

}  // namespace gradvane::agent
