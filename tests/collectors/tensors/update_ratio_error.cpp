// Prints the tables of docs/update-ratio.md: the error of the estimated update-to-weight ratio against
// the exact one, over made-up updates of one matrix and over training with several optimizers.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectors/tensors/update_sample.hpp"

namespace {

using gradvane::collectors::UpdateSample;
using gradvane::kernels::TensorStats;

constexpr std::int64_t kPerParam = 4096;  // the default of update_sample

double norm_of(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).norm().item<double>();
}

/// ‖Δw‖ as it is estimated from the sample.
double estimate(const TensorStats& sample, std::int64_t numel) {
  return std::sqrt(static_cast<double>(numel) / static_cast<double>(sample.numel)) * sample.norm();
}

struct Errors {
  std::vector<double> relative;  // |estimate / exact - 1|

  void add(double estimated, double exact) {
    if (exact > 0) relative.push_back(std::fabs(estimated / exact - 1));
  }
  [[nodiscard]] double quantile(double q) {
    if (relative.empty()) return 0;
    std::ranges::sort(relative);
    return relative[static_cast<std::size_t>(q * static_cast<double>(relative.size() - 1))];
  }
};

std::string percent(double share) {
  if (share < 1e-4) return "< 0.01 %";
  char text[32];
  std::snprintf(text, sizeof text, share < 0.1 ? "%.1f %%" : "%.0f %%", 100 * share);
  return text;
}

void print_row(const std::string& name, const std::vector<double>& shares) {
  std::string row = "| " + name;
  for (const double share : shares) row += " | " + percent(share);
  std::printf("%s |\n", row.c_str());
}

// One matrix of 1024 x 1024, fifty updates of each kind.

struct MadeUp {
  const char* name;
  std::function<at::Tensor()> update;
};

void measure_made_up() {
  constexpr std::int64_t kRows = 1024;
  const std::vector<MadeUp> cases = {
      {"normal", [] { return at::randn({kRows, kRows}); }},
      {"log-normal, sigma 1", [] { return at::randn({kRows, kRows}).exp(); }},
      {"log-normal, sigma 2", [] { return (2 * at::randn({kRows, kRows})).exp(); }},
      {"all alike (sign descent)", [] { return at::randn({kRows, kRows}).sign(); }},
      {"every column at its own scale, sigma 1",
       [] { return at::randn({kRows, kRows}) * at::randn({1, kRows}).exp(); }},
      {"half of the columns still (dead inputs)",
       [] { return at::randn({kRows, kRows}) * at::rand({1, kRows}).gt(0.5); }},
      {"half of the rows still (dead units)",
       [] { return at::randn({kRows, kRows}) * at::rand({kRows, 1}).gt(0.5); }},
      {"one row in ten moves (embedding)",
       [] { return at::randn({kRows, kRows}) * at::rand({kRows, 1}).lt(0.1); }},
      {"one row in a hundred moves",
       [] { return at::randn({kRows, kRows}) * at::rand({kRows, 1}).lt(0.01); }},
      {"one element in a hundred moves",
       [] { return at::randn({kRows, kRows}) * at::rand({kRows, kRows}).lt(0.01); }},
  };
  std::printf("| Update | median | 95 of 100 | largest |\n|---|---|---|---|\n");
  for (const MadeUp& made_up : cases) {
    at::manual_seed(1);
    Errors errors;
    for (int i = 0; i < 50; ++i) {
      std::vector<at::Tensor> params{0.02 * at::randn({kRows, kRows})};
      params[0].set_requires_grad(true);
      UpdateSample sample;
      sample.resize(params, kPerParam);
      sample.keep(params);
      const at::Tensor before = params[0].detach().to(at::kDouble);
      {
        const at::NoGradGuard no_grad;
        params[0].add_(made_up.update(), 1e-5);
      }
      std::vector<TensorStats> out(1);
      sample.difference(params, out);
      errors.add(estimate(out[0], params[0].numel()), norm_of(params[0].to(at::kDouble) - before));
    }
    print_row(made_up.name, {errors.quantile(0.5), errors.quantile(0.95), errors.quantile(1)});
  }
}

// A small language model: an embedding and three layers with dead inputs, as ReLU makes them.

struct Net : torch::nn::Module {
  Net() {
    embedding = register_module("embedding", torch::nn::Embedding(2048, 256));
    in = register_module("in", torch::nn::Linear(256, 1024));
    middle = register_module("middle", torch::nn::Linear(1024, 1024));
    out = register_module("out", torch::nn::Linear(1024, 2048));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    return out(middle(in(embedding(tokens)).relu()).relu());
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear in{nullptr};
  torch::nn::Linear middle{nullptr};
  torch::nn::Linear out{nullptr};
};

using Params = std::vector<at::Tensor>;
struct Trained {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(const Params&)> make;
};

void measure_training() {
  namespace optim = torch::optim;
  const std::vector<Trained> cases = {
      {"SGD", [](const Params& p) { return std::make_unique<optim::SGD>(p, 0.1); }},
      {"SGD, momentum 0.9",
       [](const Params& p) {
         return std::make_unique<optim::SGD>(p, optim::SGDOptions(0.1).momentum(0.9));
       }},
      {"Adam", [](const Params& p) { return std::make_unique<optim::Adam>(p, 1e-3); }},
      {"AdamW", [](const Params& p) { return std::make_unique<optim::AdamW>(p, 1e-3); }},
      {"RMSprop", [](const Params& p) { return std::make_unique<optim::RMSprop>(p, 1e-3); }},
  };
  std::printf("| Optimizer | median | 95 of 100 | largest | whole model, largest |\n");
  std::printf("|---|---|---|---|---|\n");
  for (const Trained& trained : cases) {
    at::manual_seed(2);
    Net net;
    const Params params = net.parameters();
    const auto optimizer = trained.make(params);
    UpdateSample sample;
    sample.resize(params, kPerParam);
    // Words are as unequal as in a language: the n-th is seen about 1/n of the time.
    const at::Tensor tokens =
        at::rand({4096}).mul(std::log(2048.0)).exp().floor().to(at::kLong) - 1;
    Errors by_param;
    Errors whole;
    for (int step = 0; step < 40; ++step) {
      const at::Tensor at = at::randint(4095, {64});
      optimizer->zero_grad();
      at::cross_entropy_loss(net.forward(tokens.index({at})), tokens.index({at + 1})).backward();
      Params before;
      for (const auto& param : params) before.push_back(param.detach().to(at::kDouble));
      sample.keep(params);
      optimizer->step();
      std::vector<TensorStats> out(params.size());
      sample.difference(params, out);
      double exact_sq = 0;
      double estimated_sq = 0;
      for (std::size_t i = 0; i < params.size(); ++i) {
        const double exact = norm_of(params[i].detach().to(at::kDouble) - before[i]);
        const double estimated = estimate(out[i], params[i].numel());
        exact_sq += exact * exact;
        estimated_sq += estimated * estimated;
        if (params[i].numel() > kPerParam) by_param.add(estimated, exact);
      }
      whole.add(std::sqrt(estimated_sq), std::sqrt(exact_sq));
    }
    print_row(trained.name, {by_param.quantile(0.5), by_param.quantile(0.95), by_param.quantile(1),
                             whole.quantile(1)});
  }
}

}  // namespace

int main() {
  measure_made_up();
  std::printf("\n");
  measure_training();
}
