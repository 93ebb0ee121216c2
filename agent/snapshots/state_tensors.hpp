#pragma once
// What torch's optimizers keep of a parameter, and the hyperparameters of a group: torch itself has no way to list or to
// assign them without their type.
#include <ATen/core/Tensor.h>

#include <functional>

namespace torch::optim {
class OptimizerOptions;
class OptimizerParamState;
}  // namespace torch::optim

namespace gradvane::agent {

/// Calls `visit` for each tensor of `state` that is defined, in an order that depends on its type
/// alone. Returns false for a type that is none of torch's: its tensors are not known.
bool for_each_tensor(torch::optim::OptimizerParamState& state,
                     const std::function<void(at::Tensor&)>& visit);

/// Gives `to` all values of `from`, and keeps its address, which a program may hold. Of types that are none of torch's, or
/// that differ, the learning rate alone.
void assign(torch::optim::OptimizerOptions& to, const torch::optim::OptimizerOptions& from);

}  // namespace gradvane::agent
