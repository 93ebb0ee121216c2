#pragma once
// Which watched optimizers own the parameters that a call names.
#include <vector>

#include "agent/step/step_recorder.hpp"

namespace gradvane::python {

/// Remembers the last answer, since a loop clips the same parameters each step. Training thread
/// only.
class ParameterOwners {
 public:
  struct Owners {
    std::vector<int> optimizers;
    /// The tensors are exactly what one optimizer owns, each once: one read covers them all.
    bool is_whole = false;
  };

  /// @param params  the tensors' implementations, in the order of the call
  [[nodiscard]] Owners of(const std::vector<const void*>& params, agent::StepRecorder& recorder);
  /// The optimizers that one of these is a gradient of. Reads no gradient, as another thread may be training it.
  /// @param gradients  the tensors' implementations
  [[nodiscard]] static std::vector<int> of_gradients(const std::vector<const void*>& gradients,
                                                     const agent::StepRecorder& recorder);
  /// After an optimizer came or went.
  void forget() noexcept { last_owner_ = -1; }

 private:
  std::vector<const void*> last_params_;
  int last_owner_ = -1;  ///< owns all of last_params_; -1: not known
};

}  // namespace gradvane::python
