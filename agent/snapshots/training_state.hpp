#pragma once
// What a training's state is in LibTorch: parameters and buffers of the modules, what the optimizers
// keep, their hyperparameters, random numbers of the CPU and of the devices, and what the program adds.
#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/snapshots/copies.hpp"

namespace torch::nn {
class Module;
}

namespace gradvane::agent {

/// Copies of a state, on the host. Their memory is used again by the next copy of a state of the same shape.
struct StateCopy {
  struct OfParameter {
    void* key = nullptr;  ///< as the optimizer has it
    /// Its tensors are those of `tensors`.
    std::unique_ptr<torch::optim::OptimizerParamState> state = nullptr;
  };
  struct OfOptimizer {
    std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options{};  ///< by group
    std::vector<const void*> params{};  ///< of all groups in order: their TensorImpls, and a null
    std::vector<OfParameter> states{};  ///< of those that have one
  };

  std::vector<std::string> names{};    ///< of the first tensors: parameters and buffers
  std::vector<at::Tensor> tensors{};   ///< all: of modules, then of optimizers, then random numbers
  std::vector<c10::Device> homes{};    ///< where the tensors of `tensors` were
  std::vector<c10::Device> devices{};  ///< that have random numbers of their own
  at::Tensor pinned{};  ///< the memory of those of `tensors` that are copies of a device's
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
  /// @param overlaps  no stream waits for copies of what only an optimizer writes: the caller will, with Copies::gate()
  [[nodiscard]] Flight copy(StateCopy& to, Copies& copies, bool overlaps) const;
  /// How it differs from what `from` is a copy of; empty if it can take the copy.
  [[nodiscard]] std::string difference(const StateCopy& from) const;
  /// In place; difference() was empty. Returns what the program's own functions failed with.
  /// @param read_by  the copies to devices: while they are under way, `from` must stay as it is
  std::vector<std::string> restore(const StateCopy& from, Copies& copies, Flight& read_by,
                                   RollbackOptimizer optimizer, double lr_factor);
  /// They are of weights that are gone.
  void drop_gradients();

 private:
  struct UserState {
    std::string name;
    SaveState save;
    LoadState load;
  };
  struct Named {
    std::string name;
    at::Tensor tensor;
    bool is_buffer = false;  ///< a forward pass may write it
  };

  [[nodiscard]] std::vector<Named> named_tensors() const;

  std::vector<torch::nn::Module*> modules_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<UserState> user_;
};

}  // namespace gradvane::agent
