#pragma once
// What backward passes show of a step, and what becomes of gradients that no step was taken with:
// for loops that are seen from outside.
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "agent/step/reads/gradient_reader.hpp"

namespace gradvane::agent {

/// Sees which optimizers' gradients a backward pass writes to. Training thread only, or several
/// that each train their own optimizers, one call at a time: a pass of one thread shows nothing of
/// another's, and must not touch their gradients. Who trains what is known from the first pass that
/// overlaps with no other thread's, and from the first step on. Until then, passes that overlap show
/// nothing of an optimizer. While other threads train, or may begin to, one may hand its optimizer to
/// another at any time: then a pass that adds to a gradient that was there is seen only if its thread
/// trains no other optimizer.
class BackwardWatch {
 public:
  BackwardWatch(AttachedOptimizers& optimizers, RunSteps& run, StepLosses& losses,
                GradientReader& gradients, collectors::Handoff& handoff)
      : optimizers_(optimizers),
        watch_(optimizers.watch()),
        run_(run),
        losses_(losses),
        gradients_(gradients),
        handoff_(handoff) {}

  /// As StepRecorder's functions of these names.
  int before_backward(bool within_step) noexcept;
  void after_backward(const collectors::Tensor& loss) noexcept;
  /// Whether several threads are known to train or to clear gradients; if not, the caller is the only one that lives. Any
  /// thread: those that clear none yet tell it before they do, and no lock that a pass may hold is taken.
  void set_several_train(bool several) noexcept;
  /// Whether no other thread can be in the middle of clearing an optimizer's gradients.
  [[nodiscard]] bool may_look_at(int optimizer) const noexcept;
  /// As after_backward(), for a pass that raised.
  void backward_failed() noexcept { (void)end_pass(); }
  [[nodiscard]] bool is_unused(int optimizer) const noexcept;
  void discard(int optimizer) noexcept;

  /// A step was taken with the backward passes so far. `here`: by this thread.
  void step_taken(OptimizerState& state, bool here) noexcept;
  /// Hands over gradients that were read although the loop went on without a step. They are
  /// reported only if they were bad.
  void hand_over_superseded(int optimizer) noexcept;
  void hand_over_unfinished() noexcept;

 private:
  /// A pass that has begun and not ended.
  struct Pass {
    std::weak_ptr<const char> thread;
    std::uint64_t number = 0;
  };
  /// Of optimizers, as seen by this thread.
  struct Trainers {
    int mine = 0;         ///< optimizers that this thread trains
    bool others = false;  ///< another thread that lives trains some, or may
  };

  OptimizerState& at(int optimizer) noexcept { return optimizers_.at(optimizer); }
  std::uint64_t begin_pass() noexcept;
  std::uint64_t end_pass() noexcept;
  [[nodiscard]] bool another_is_in_pass() const noexcept;
  [[nodiscard]] Trainers trainers() const noexcept;
  [[nodiscard]] std::shared_ptr<const char> trainer_of(const SeenPasses& passes) const noexcept;
  /// A thread that lives is known to train it.
  [[nodiscard]] bool is_known(const SeenPasses& passes) const noexcept;
  [[nodiscard]] bool is_anothers(const SeenPasses& passes) const noexcept;
  [[nodiscard]] GradientStamp stamp(int optimizer, std::size_t entry) const noexcept;
  [[nodiscard]] bool was_touched(int optimizer, bool trains_no_other) const noexcept;

  AttachedOptimizers& optimizers_;
  collectors::ModelWatch& watch_;
  RunSteps& run_;
  StepLosses& losses_;
  GradientReader& gradients_;
  collectors::Handoff& handoff_;
  std::vector<Pass> in_progress_;
  std::atomic<bool> several_train_{false};
  std::atomic<const char*> only_trainer_{nullptr};  ///< a thread's token; null: others may train
  std::uint64_t begun_ = 0;                         ///< backward passes that have begun
  std::uint64_t passes_ = 0;                        ///< backward passes that have ended
  std::uint64_t taken_pass_ = 0;  ///< the last one of those that a step was taken with
};

}  // namespace gradvane::agent
