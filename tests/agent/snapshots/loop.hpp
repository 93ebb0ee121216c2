#pragma once
// A training whose state has everything that a rollback puts back.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize/archive.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "tests/agent/training.hpp"

namespace gradvane::test {

using Params = std::vector<at::Tensor>;
using OptimizerPtr = std::unique_ptr<torch::optim::Optimizer>;
inline OptimizerPtr adamw(const Params& params) {
  return std::make_unique<torch::optim::AdamW>(params, torch::optim::AdamWOptions(1e-2));
}

/// With dropout, so that random numbers matter, and a batch norm, whose buffers the forward pass writes.
struct Loop {
  explicit Loop(const std::function<OptimizerPtr(const Params&)>& make = adamw,
                at::Device on = at::kCPU)
      : device(on) {
    at::manual_seed(7);
    model->push_back(torch::nn::Linear(6, 12));
    model->push_back(torch::nn::BatchNorm1d(12));
    model->push_back(torch::nn::Tanh());
    model->push_back(torch::nn::Dropout(0.3));
    model->push_back(torch::nn::Linear(12, 1));
    model->to(device);
    optimizer = make(model->parameters());
  }

  /// Forward and backward on batch `number`, which is the same whenever it is asked for.
  at::Tensor backward(int number, double factor = 1) {
    optimizer->zero_grad();
    const at::Tensor x =
        torch::arange(24).reshape({4, 6}).mul(0.37 * (number + 1)).sin().to(device);
    at::Tensor loss = model->forward(x).pow(2).mean() * factor;
    loss.backward();
    return loss.detach();
  }
  /// Parameters, buffers and all that the optimizer keeps, its counters included.
  [[nodiscard]] std::vector<at::Tensor> everything() const {
    std::vector<at::Tensor> all = weights();
    for (const at::Tensor& param : model->parameters()) {
      const auto found = optimizer->state().find(param.unsafeGetTensorImpl());
      if (found == optimizer->state().end()) continue;
      if (const auto* lbfgs = dynamic_cast<torch::optim::LBFGSParamState*>(found->second.get())) {
        put(all, *lbfgs);
        continue;
      }
      torch::serialize::OutputArchive archive;
      found->second->serialize(archive);
      std::ostringstream text;
      archive.save_to(text);
      all.push_back(as_tensor(text.str()));
    }
    return all;
  }
  [[nodiscard]] std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& param : model->parameters()) all.push_back(param.detach().clone());
    for (const at::Tensor& buffer : model->buffers()) all.push_back(buffer.clone());
    return all;
  }

  at::Device device;
  torch::nn::Sequential model;
  OptimizerPtr optimizer;

 private:
  static at::Tensor as_tensor(const std::string& text) {
    return torch::tensor(std::vector<std::int64_t>(text.begin(), text.end()));
  }
  static void put(std::vector<at::Tensor>& all, const torch::optim::LBFGSParamState& state) {
    all.push_back(torch::tensor(std::vector<double>{static_cast<double>(state.n_iter()), state.t(),
                                                    static_cast<double>(state.func_evals()),
                                                    state.prev_loss()}));
    for (const at::Tensor& tensor : {state.d(), state.prev_flat_grad()})
      all.push_back(tensor.clone());
    for (const auto& list : {state.old_dirs(), state.old_stps(), state.ro()})
      for (const at::Tensor& tensor : list) all.push_back(tensor.clone());
  }
};

inline bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b,
                            [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

inline Options rolling_back(int every = 1) {
  Options options = quiet();
  options.on_nonfinite = NonfinitePolicy::rollback;
  options.snapshot_every = every;
  return options;
}

}  // namespace gradvane::test
