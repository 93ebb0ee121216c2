#pragma once
// Clipping with the norm that the pass reads, and clipping by others.
//
// A norm that gradients are scaled by is always read by the call that scales them. Version counters
// do not show every write (collectives, `.data`, the program's own kernels), so an earlier read of
// the step may be of other gradients. What is only reported may come from the earlier read.
#include <optional>
#include <vector>

#include "agent/step/reads/gradient_reader.hpp"

namespace gradvane::agent {

/// Training thread only. clip() and norm() throw what torch's operators throw, and std::bad_alloc.
class Clipping {
 public:
  Clipping(AttachedOptimizers& optimizers, GradientReader& gradients)
      : optimizers_(optimizers), watch_(optimizers.watch()), gradients_(gradients) {}

  /// As StepRecorder's functions of these names.
  collectors::Tensor clip(int optimizer, double max_norm, bool just_read);
  collectors::Tensor norm(int optimizer);
  [[nodiscard]] bool is_sharded(int optimizer) const noexcept;
  void note_clip(int optimizer, double max_norm) noexcept;
  void note_other_clip(int optimizer) noexcept { at(optimizer).reads_norm_again = true; }

 private:
  [[nodiscard]] collectors::Tensor clip_on_host(int begin, int end, double max_norm,
                                                const std::vector<collectors::Tensor>& gradients,
                                                bool is_current, bool all_ours);
  bool clip_on_device(int optimizer, double max_norm,
                      const std::vector<collectors::Tensor>& gradients);
  void read_once_more(int optimizer);
  [[nodiscard]] std::optional<double> host_norm(int begin, int end, bool is_current);
  [[nodiscard]] bool device_covers(int optimizer) const noexcept;
  OptimizerState& at(int optimizer) noexcept { return optimizers_.at(optimizer); }

  AttachedOptimizers& optimizers_;
  collectors::ModelWatch& watch_;
  GradientReader& gradients_;
};

}  // namespace gradvane::agent
