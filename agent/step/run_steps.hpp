#pragma once
// Which number a step has: among those of its optimizer, and in the run.
#include <cstdint>

#include "agent/step/attached_optimizers.hpp"

namespace gradvane::agent {

/// The steps of one optimizer are the run's: it leads. Training thread only.
class RunSteps {
 public:
  /// @param start_step  steps that every optimizer took before this process; 0: it knows them
  /// itself
  RunSteps(std::int64_t start_step, AttachedOptimizers& optimizers)
      : start_step_(start_step), optimizers_(optimizers) {}

  /// Before an optimizer's first step: sets how many it took before this process.
  void start(int optimizer) noexcept;
  [[nodiscard]] bool leads(int optimizer) const noexcept;
  /// The run step that a step in progress will be, if its optimizer leads.
  [[nodiscard]] std::int64_t next(int optimizer) const noexcept;
  /// The run step that `optimizer`'s step in progress will be.
  [[nodiscard]] std::int64_t of(int optimizer) noexcept;
  /// The optimizer has taken a step.
  void end_step(int optimizer) noexcept;
  /// The run's last step; 0 before the first.
  [[nodiscard]] std::int64_t last() const noexcept { return last_; }

 private:
  std::int64_t start_step_;
  AttachedOptimizers& optimizers_;
  int leader_ = -1;
  std::int64_t last_ = 0;
};

}  // namespace gradvane::agent
