#pragma once
// Norms of gradients and scaling them, as torch::nn::utils::clip_grad_norm_ does. Dense gradients
// of one device and type go through one operator together, so that a clip is a few launches for any
// model.
#include <vector>

#include "collectors/tensors/tensor.hpp"

namespace gradvane::agent {

/// Multiplies every gradient by `coefficient` in place, outside autograd. 1 touches nothing. For
/// CPUs.
void scale_gradients(const std::vector<collectors::Tensor>& gradients, double coefficient);

/// The total L2 norm by torch's own operators, on the devices of the gradients and without a host
/// sync. 0-dim fp64 on the first one's device. Sparse gradients are coalesced for it.
[[nodiscard]] collectors::Tensor norm_with_torch(const std::vector<collectors::Tensor>& gradients);

/// Scales to a largest norm, given the norm: 0-dim fp64 on any device, left as it is. Without a
/// host sync. The coefficient is computed in fp64 and rounded to the type of the gradients that it
/// multiplies.
void clip_to_norm(const std::vector<collectors::Tensor>& gradients, const collectors::Tensor& norm,
                  double max_norm);

/// Tells torch that they were written to by others than its own operators.
void note_written(const std::vector<collectors::Tensor>& gradients);

/// The norm in the type in which torch's clip_grad_norm_ returns it: the one that all the gradients' types
/// promote to.
[[nodiscard]] collectors::Tensor in_norm_type(const collectors::Tensor& norm,
                                              const std::vector<collectors::Tensor>& parameters);

/// A 0-dim fp64 CPU tensor.
[[nodiscard]] collectors::Tensor scalar_tensor(double value);

}  // namespace gradvane::agent
