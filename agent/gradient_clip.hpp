#pragma once
// Scaling gradients to a largest total norm, as torch::nn::utils::clip_grad_norm_ does.
#include <ATen/core/Tensor.h>

#include <vector>

namespace gradvane::agent {

/// Multiplies every gradient by `coefficient` in place, outside autograd. 1 touches nothing.
void scale_gradients(const std::vector<at::Tensor>& gradients, double coefficient);

/// The whole of it with torch's own operators, on the devices of the gradients and without a host sync:
/// for gradients that the statistics pass cannot read. Returns the norm, 0-dim, on the first one's device.
[[nodiscard]] at::Tensor clip_with_torch(const std::vector<at::Tensor>& gradients, double max_norm);

/// The same with a norm that is on their device already; returns a copy of it.
[[nodiscard]] at::Tensor clip_on_device(const std::vector<at::Tensor>& gradients,
                                        const at::Tensor& norm, double max_norm);

/// A 0-dim fp64 CPU tensor.
[[nodiscard]] at::Tensor scalar_tensor(double value);

}  // namespace gradvane::agent
