#pragma once
// Reads the gradients of one optimizer, with the loss so far, and hands what was read to the
// worker.
#include <optional>

#include "agent/step/attached_optimizers.hpp"
#include "agent/step/reads/weight_reader.hpp"
#include "agent/step/run_steps.hpp"

namespace gradvane::agent {

/// Training thread only. Never waits; it allocates when parameters have changed.
class GradientReader {
 public:
  GradientReader(AttachedOptimizers& optimizers, RunSteps& run, StepLosses& losses,
                 WeightReader& weights, collectors::Handoff& handoff, bool keeps_norm = false)
      : optimizers_(optimizers),
        watch_(optimizers.watch()),
        run_(run),
        losses_(losses),
        weights_(weights),
        handoff_(handoff),
        keeps_norm_(keeps_norm) {}

  /// Reads for the current step, unless that was done already.
  void read(int optimizer, record::ReadAt where) noexcept;
  /// As StepRecorder's functions of these names.
  void note_scale(int optimizer, const collectors::Tensor& scale, bool is_scaled) noexcept;
  void look_again(int optimizer) noexcept;
  void after_evaluation(int optimizer) noexcept;
  [[nodiscard]] std::optional<FoundInGradients> found_for_scaler(int optimizer);

  /// Makes new plans if the optimizer's parameters have changed.
  void follow_changes(int optimizer) noexcept;
  /// Sets every gradient and the loss so far, and reads those on a CPU. False: there is no memory.
  /// @param stamps  false: no one will ask whether they have been written to since
  bool scan(int optimizer, bool stamps = true) noexcept;
  /// Hands over the gradients of the last scan() once more: they have become bad since the step's
  /// read.
  void publish_again(int optimizer) noexcept;
  /// Marks the gradients' current versions as seen.
  void stamp(int optimizer) noexcept;
  /// Whether no version counter shows a write since the gradients were read or stamped.
  [[nodiscard]] bool is_unchanged(int optimizer) const noexcept;

 private:
  void publish(int optimizer, record::ReadAt where) noexcept;
  void read_on_devices(OptimizerState& state) noexcept;
  [[nodiscard]] double norm_of_read(int optimizer) noexcept;
  OptimizerState& at(int optimizer) noexcept { return optimizers_.at(optimizer); }

  AttachedOptimizers& optimizers_;
  collectors::ModelWatch& watch_;
  RunSteps& run_;
  StepLosses& losses_;
  WeightReader& weights_;
  collectors::Handoff& handoff_;
  const bool keeps_norm_;  ///< of what is read for a step, in OptimizerState::read_norm
};

}  // namespace gradvane::agent
