#pragma once
// A torch::nn module and a torch::optim optimizer as a source of parameters.
#include <memory>

#include "collectors/model/model_source.hpp"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace gradvane::collectors {

/// `optimizer` may be null: a loop without one. Both must outlive the source. Throws
/// std::invalid_argument where the optimizer owns none of the module's parameters.
[[nodiscard]] std::unique_ptr<ModelSource> libtorch_source(torch::nn::Module& module,
                                                           torch::optim::Optimizer* optimizer);

}  // namespace gradvane::collectors
