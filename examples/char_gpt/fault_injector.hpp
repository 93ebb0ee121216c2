#pragma once
// Puts the faults of --fault into gradients, and takes transient ones out again.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/char_gpt/fault.hpp"

namespace torch::optim {
class Optimizer;
}

namespace char_gpt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

class FaultInjector {
 public:
  /// Throws std::invalid_argument where a fault names no parameter of `parameters`.
  FaultInjector(const std::vector<Fault>& faults, const NamedTensors& parameters);

  /// Overwrites the elements whose turn is `step`. Call it behind the last backward pass of the step.
  /// True where one of them is transient: then restore() must follow before the gradient is used.
  /// Throws std::runtime_error where a parameter has no gradient.
  [[nodiscard]] bool poison(std::int64_t step);

  /// Overwrites the element of the optimizer's state whose turn is `step`: of AdamW's running mean
  /// of the gradient. Call it after the optimizer's step.
  void poison_state(std::int64_t step, torch::optim::Optimizer& optimizer);

  /// Puts back, bit for bit, what transient faults overwrote.
  void restore();

 private:
  struct Target {
    Fault fault;
    at::Tensor parameter;
  };
  struct Saved {
    at::Tensor element;  // a view of one gradient element
    at::Tensor value;    // what it was
  };
  std::vector<Target> targets_;
  std::vector<Saved> saved_;
};

/// A 0-dim view of the middle element, number numel/2 in row-major order, of any strided tensor.
[[nodiscard]] at::Tensor middle_element(const at::Tensor& tensor);

}  // namespace char_gpt
