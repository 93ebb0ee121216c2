#include "tests/agent/training.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/utils.h>

#include <cstring>

namespace gradvane::test {

Training::Training(std::uint64_t seed, at::Device where) : device(where) {
  torch::manual_seed(seed);
  model =
      torch::nn::Sequential(torch::nn::Linear(16, 32), torch::nn::ReLU(), torch::nn::Dropout(0.3),
                            torch::nn::Linear(32, 32), torch::nn::ReLU(), torch::nn::Linear(32, 4));
  model->to(device);
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
  for (const at::Tensor& parameter : model->parameters())
    (parameter.dim() > 1 ? weights : biases).push_back(parameter);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(weights, std::make_unique<torch::optim::AdamWOptions>(1e-2));
  groups.emplace_back(biases, std::make_unique<torch::optim::AdamWOptions>(1e-3));
  optimizer = std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(1e-2));
}

at::Tensor Training::backward() {
  optimizer->zero_grad();
  const at::Tensor input = torch::randn({8, 16}, at::TensorOptions().device(device));
  const at::Tensor target = input.narrow(1, 0, 4) * 2 + 1;
  at::Tensor loss = at::mse_loss(model->forward(input), target);
  loss.backward();
  return loss;
}

std::vector<at::Tensor> Training::gradients() const {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : model->parameters())
    if (parameter.grad().defined()) all.push_back(parameter.grad());
  return all;
}

double Training::gradient_norm() const {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& gradient : gradients()) flat.push_back(gradient.flatten().to(at::kDouble));
  return at::linalg_vector_norm(at::cat(flat)).item<double>();
}

at::Tensor Training::parameter(const std::string& name) const {
  return model->named_parameters()[name];
}

std::vector<char> Training::weight_bytes() const {
  std::vector<char> bytes;
  for (const at::Tensor& parameter : model->parameters()) {
    const at::Tensor copy = parameter.detach().cpu();
    const auto* data = static_cast<const char*>(copy.const_data_ptr());
    bytes.insert(bytes.end(), data, data + copy.nbytes());
  }
  return bytes;
}

void poison(const at::Tensor& tensor, std::int64_t element, double value) {
  const torch::NoGradGuard off;
  tensor.view(-1)[element].fill_(value);
}

Options quiet() {
  Options options;
  options.run = "test";
  options.port = -1;
  options.linger_seconds = 0;
  options.linger_incident_seconds = 0;
  options.handle_sigterm = false;
  options.sync = Sync::off;  // a test may want CUPTI's one subscription for itself
  return options;
}

Options immediate() {
  Options options = quiet();
  options.mode = Mode::immediate;
  return options;
}

}  // namespace gradvane::test
