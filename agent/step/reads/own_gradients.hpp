#pragma once
// What a rank's own gradients are before ranks average them: after that, a bad one is bad on all.
#include <cstdint>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/ranks/rank_record.hpp"
#include "agent/step/attached_optimizers.hpp"
#include "collectors/tensors/cpu_reader.hpp"
#include "collectors/tensors/tensor.hpp"

namespace gradvane::agent {

/// Its findings hold for the step in hand of each optimizer that has the parameter.
class OwnGradients {
 public:
  /// `optimizers` outlives this object.
  OwnGradients(const Options& options, AttachedOptimizers& optimizers)
      : looks_(options.check_before_reduction), optimizers_(optimizers) {}

  /// The gradient of `param` is not finite at `element`, a row-major index. From a hook of a backward
  /// pass too, on whatever thread, one call at a time.
  void note(const collectors::Tensor& param, std::int64_t element) noexcept;

  /// On the thread that trains. Reads all gradients that lie on CPUs once, if Options::check_before_reduction is on, and notes the
  /// first that is not finite. What was noted before is forgotten. Allocates.
  void look() noexcept;

 private:
  void keep_first(int optimizer, const ranks::BadElement& found) noexcept;

  const bool looks_;
  AttachedOptimizers& optimizers_;
  std::vector<collectors::CpuReader> readers_;  ///< by optimizer
};

}  // namespace gradvane::agent
