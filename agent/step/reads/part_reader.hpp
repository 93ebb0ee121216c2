#pragma once
// Reads gradients that come and go within the backward pass, one parameter at a time.
#include "agent/step/attached_optimizers.hpp"
#include "collectors/tensors/cpu_reader.hpp"

namespace gradvane::agent {

/// For optimizers that step in parts. On CPUs; a gradient on a device is unsupported. Training
/// thread only.
class PartReader {
 public:
  PartReader(AttachedOptimizers& optimizers, collectors::Handoff& handoff);

  /// Reads the gradient of one parameter now.
  void read(int optimizer, const collectors::Tensor& param) noexcept;
  /// The pass has ended: hands over all that were read in it as the read of the step.
  void publish(int optimizer) noexcept;

 private:
  AttachedOptimizers& optimizers_;
  collectors::Handoff& handoff_;
  collectors::CpuReader reader_;
};

}  // namespace gradvane::agent
