#include "agent/step/backward_watch.hpp"

#include <algorithm>
#include <thread>

#include "record/clocks.hpp"

namespace gradvane::agent {
namespace {

thread_local bool begins_backward_passes = false;

/// Several threads may train at once, each its own optimizers: a backward pass of one shows nothing
/// of the others'. Who trains what is known from the first step on.
bool is_anothers(const SeenPasses& passes) noexcept {
  return passes.trainer != std::thread::id() && passes.trainer != std::this_thread::get_id();
}

/// A thread of autograd's own may take the step, within the pass: it begins none itself.
void note_trainer(SeenPasses& passes) noexcept {
  if (begins_backward_passes) passes.trainer = std::this_thread::get_id();
}

}  // namespace

int BackwardWatch::before_backward(bool within_step) noexcept {
  int unseen = 0;
  if (!optimizers_.is_enabled()) return unseen;
  optimizers_.catch_up();
  begins_backward_passes = true;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o) || is_anothers(at(o).passes)) continue;
    OptimizerState& state = at(o);
    SeenPasses& passes = state.passes;
    const bool is_reported = state.has_read;
    if (state.has_read && !within_step && state.reader == std::this_thread::get_id())
      hand_over_superseded(o);
    bool all_gone = true;
    for (std::size_t k = 0; k < passes.entries.size(); ++k) {
      const collectors::Tensor gradient = watch_.gradient_now(o, passes.entries[k]);
      passes.before_backward[k] = GradientStamp::of(gradient);
      all_gone = all_gone && !gradient.defined();
    }
    if (within_step) {
      if (all_gone) state.losses.clear();
      continue;
    }
    const bool was_unused = passes.was_discarded || (all_gone && passes.backwards > 0);
    unseen += was_unused ? 1 : 0;
    if (all_gone) {
      if (!is_reported) discard(o);
      state.losses.clear();
      passes.backwards = 0;
    }
    passes.was_discarded = false;
  }
  return unseen;
}

void BackwardWatch::after_backward(const collectors::Tensor& loss) noexcept {
  if (!optimizers_.is_enabled()) return;
  ++passes_;
  for (int o = 0; o < watch_.optimizers(); ++o) {
    if (watch_.is_removed(o) || is_anothers(at(o).passes)) continue;
    OptimizerState& state = at(o);
    SeenPasses& passes = state.passes;
    bool touched = false;
    for (std::size_t k = 0; k < passes.entries.size() && !touched; ++k) {
      const collectors::Tensor gradient = watch_.gradient_now(o, passes.entries[k]);
      touched = gradient.defined() && GradientStamp::of(gradient) != passes.before_backward[k];
    }
    if (!touched) continue;
    ++passes.backwards;
    passes.last_pass = passes_;
    if (loss.defined()) losses_.add(state.losses, loss, Losses::From::backward);
  }
}

void BackwardWatch::step_taken(OptimizerState& state) noexcept {
  taken_pass_ = std::max(taken_pass_, state.passes.last_pass);
  note_trainer(state.passes);
}

/// A generator's backward pass writes to the gradients of its critic too. No step will be taken
/// with those, but one was taken with that pass.
bool BackwardWatch::is_unused(int optimizer) const noexcept {
  const OptimizerState& state = optimizers_.at(optimizer);
  const bool is_for_step = state.has_read && state.facts.read_at != record::ReadAt::clip;
  return optimizers_.is_enabled() && state.passes.backwards > 0 && !is_for_step &&
         state.passes.last_pass > taken_pass_;
}

void BackwardWatch::discard(int optimizer) noexcept {
  if (!is_unused(optimizer) || is_anothers(at(optimizer).passes)) return;
  OptimizerState& state = at(optimizer);
  gradients_.read(optimizer, record::ReadAt::backward);
  state.facts.bad_micro_step = losses_.of(state.losses).first_bad();
  // What the loop has passed belongs to what it leaves behind, unless another optimizer is to take
  // it.
  if (losses_.of_loop().first_bad() > 0 || watch_.live() == 1) losses_.clear();
  if (state.has_read) hand_over_superseded(optimizer);
  state.losses.clear();
  state.passes.backwards = 0;
  state.passes.was_discarded = true;
}

void BackwardWatch::hand_over_superseded(int optimizer) noexcept {
  OptimizerState& state = at(optimizer);
  collectors::StepFacts& facts = state.facts;
  facts.superseded = true;
  facts.skipped = record::SkipReason::loop;
  facts.step = state.step + 1;
  facts.run_step = run_.next(optimizer);
  facts.optimizer = optimizer;
  facts.micro_steps = std::max(state.passes.backwards, 1);
  facts.time = record::unix_time();
  facts.monotonic = record::monotonic_time();
  handoff_.publish(facts);
  state.forget_read();
}

void BackwardWatch::hand_over_unfinished() noexcept {
  if (!optimizers_.is_enabled()) return;
  for (int o = 0; o < watch_.optimizers(); ++o)
    if (at(o).has_read) hand_over_superseded(o);
}

}  // namespace gradvane::agent
