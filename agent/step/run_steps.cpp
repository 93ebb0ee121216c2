#include "agent/step/run_steps.hpp"

namespace gradvane::agent {

/// A run that goes on from a checkpoint is known to do so once its optimizer has been loaded: by
/// now.
void RunSteps::start(int optimizer) noexcept try {
  OptimizerState& state = optimizers_.at(optimizer);
  if (state.has_started) return;
  state.has_started = true;
  state.step = state.first_step =
      start_step_ > 0 ? start_step_ : optimizers_.watch().steps_done(optimizer);
} catch (...) {  // the steps before are not known
}

/// The first one to step leads. When it is gone, as that of one fold of a cross-validation is in
/// the next, another one leads, and the run counts on.
bool RunSteps::leads(int optimizer) const noexcept {
  return leader_ < 0 || leader_ == optimizer || optimizers_.watch().is_removed(leader_);
}

std::int64_t RunSteps::next(int optimizer) const noexcept {
  return (last_ > 0 ? last_ : optimizers_.at(optimizer).step) + 1;
}

std::int64_t RunSteps::of(int optimizer) noexcept {
  start(optimizer);
  return leads(optimizer) ? next(optimizer) : last_;
}

void RunSteps::end_step(int optimizer) noexcept {
  start(optimizer);
  if (leads(optimizer)) {
    last_ = next(optimizer);
    leader_ = optimizer;
  }
  ++optimizers_.at(optimizer).step;
}

}  // namespace gradvane::agent
