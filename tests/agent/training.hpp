#pragma once
// A small real training run, the same in every bit for the same seed.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"

namespace gradvane::test {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// Three linear layers with dropout, AdamW with two learning rates, made-up data from `seed`.
class Training {
 public:
  explicit Training(std::uint64_t seed = 7, at::Device device = at::kCPU);

  /// Forward and backward on the next batch; returns the loss.
  at::Tensor backward();

  at::Device device;
  torch::nn::Sequential model;
  std::unique_ptr<torch::optim::AdamW> optimizer;

  [[nodiscard]] std::vector<at::Tensor> gradients() const;
  /// L2 norm of all gradients in fp64, by torch.
  [[nodiscard]] double gradient_norm() const;
  [[nodiscard]] at::Tensor parameter(const std::string& name) const;
  /// Every byte of every parameter.
  [[nodiscard]] std::vector<char> weight_bytes() const;
};

/// Writes `value` into one element of a tensor.
void poison(const at::Tensor& tensor, std::int64_t element, double value);

/// Options for a quiet agent with no endpoint.
[[nodiscard]] Options quiet();
/// The same in immediate mode.
[[nodiscard]] Options immediate();

}  // namespace gradvane::test
