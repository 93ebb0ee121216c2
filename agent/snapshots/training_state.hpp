#pragma once
// What a training's state is in LibTorch: parameters and buffers of the modules, what the optimizers
// keep, learning rates, random numbers on the CPU, and what the program adds.
#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/include/gradvane/agent.hpp"

namespace torch::nn {
class Module;
}

namespace gradvane::agent {

/// Copies of a state. Their memory is used again by the next copy of a state of the same shape.
struct StateCopy {
  struct OfParameter {
    void* key = nullptr;  ///< as the optimizer has it
    /// Its tensors are those of `tensors`.
    std::unique_ptr<torch::optim::OptimizerParamState> state = nullptr;
  };
  struct OfOptimizer {
    std::vector<double> rates;          ///< by group
    std::vector<const void*> params;    ///< of all groups in order: their TensorImpls
    std::vector<OfParameter> states{};  ///< of those that have one
  };

  std::vector<std::string> names{};   ///< of the first tensors: parameters and buffers
  std::vector<at::Tensor> tensors{};  ///< all: of modules, then of optimizers, then random numbers
  std::vector<OfOptimizer> optimizers{};
  std::vector<std::vector<at::Tensor>> user{};  ///< of each UserState

  [[nodiscard]] std::int64_t bytes() const noexcept;
  [[nodiscard]] std::uint64_t checksum() const noexcept;
  /// The name of a tensor that holds NaN or infinity and is not in `masks`; empty if none does.
  [[nodiscard]] std::string nonfinite(const std::set<std::string>& masks) const;
};

/// Training thread only. It holds references: modules and optimizers outlive it.
class TrainingState {
 public:
  void add(torch::nn::Module& module, torch::optim::Optimizer* optimizer);
  void add(std::string name, SaveState save, LoadState load);

  [[nodiscard]] std::size_t optimizers() const noexcept { return optimizers_.size(); }
  /// Bytes that one copy takes.
  [[nodiscard]] std::int64_t bytes() const;
  /// Buffers that hold infinities and no NaN, as masks of attention do.
  [[nodiscard]] std::set<std::string> masks() const;
  /// Why it cannot be copied; empty if it can.
  [[nodiscard]] std::string unsupported() const;

  /// Throws what torch and the program's own functions throw.
  void copy(StateCopy& to) const;
  /// How it differs from what `from` is a copy of; empty if it can take the copy.
  [[nodiscard]] std::string difference(const StateCopy& from) const;
  /// In place; difference() was empty. Returns what the program's own functions failed with.
  std::vector<std::string> restore(const StateCopy& from, RollbackOptimizer optimizer,
                                   double lr_factor);
  /// They are of weights that are gone.
  void drop_gradients();

 private:
  struct UserState {
    std::string name;
    SaveState save;
    LoadState load;
  };
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  [[nodiscard]] Named named_tensors() const;
  void restore_states(torch::optim::Optimizer& optimizer, const StateCopy::OfOptimizer& from) const;

  std::vector<torch::nn::Module*> modules_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<UserState> user_;
};

}  // namespace gradvane::agent
