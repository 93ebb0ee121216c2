#pragma once
// The tensors inside what torch's optimizers keep of a parameter: torch itself has no way to list them.
#include <ATen/core/Tensor.h>

#include <functional>

namespace torch::optim {
class OptimizerParamState;
}

namespace gradvane::agent {

/// Calls `visit` for each tensor of `state` that is defined, in an order that depends on its type
/// alone. Returns false for a type that is none of torch's: its tensors are not known.
bool for_each_tensor(torch::optim::OptimizerParamState& state,
                     const std::function<void(at::Tensor&)>& visit);

}  // namespace gradvane::agent
