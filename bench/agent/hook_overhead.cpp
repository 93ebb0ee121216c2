// What the agent's hooks cost the training thread, by number of parameters: agent.step() around an
// optimizer that does nothing, in lagged mode, with its worker at work. Prints one JSON object a line.
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "bench/collectors/allocation_counter.hpp"

namespace {

struct Layer : torch::nn::Module {
  Layer(int count, std::int64_t numel) {
    for (int i = 0; i < count; ++i)
      register_parameter("p" + std::to_string(i), at::randn({numel})).mutable_grad() =
          at::randn({numel});
  }
};

struct Parameters : torch::nn::Module {
  Parameters(int count, std::int64_t numel) {
    constexpr int kLayer = 12;
    for (int i = 0; i < count; i += kLayer)
      register_module("layer" + std::to_string(i / kLayer),
                      std::make_shared<Layer>(std::min(kLayer, count - i), numel));
  }
};

struct NoOptions : torch::optim::OptimizerCloneableOptions<NoOptions> {
  double get_lr() const override { return 0; }
  void set_lr(double /*lr*/) override {}
};

class Nothing : public torch::optim::Optimizer {
 public:
  explicit Nothing(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<NoOptions>()) {}
  at::Tensor step(LossClosure /*closure*/) override { return {}; }
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

void measure(int count, std::int64_t numel, int weight_every, int steps) {
  Parameters parameters(count, numel);
  Nothing optimizer(parameters.parameters());
  gradvane::Agent agent({.run = "bench",
                         .port = -1,
                         .weight_every = weight_every,
                         .linger_seconds = 0,
                         .handle_sigterm = false});
  agent.attach(parameters, optimizer);
  const at::Tensor loss = at::randn({});
  for (int step = 0; step < 20; ++step) agent.step(optimizer, loss);

  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(steps));
  const std::int64_t allocated = gradvane::bench::bytes_allocated();
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    agent.step(optimizer, loss);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    seconds.push_back(time.count());
  }
  const std::int64_t bytes = gradvane::bench::bytes_allocated() - allocated;
  std::printf(
      "{\"parameters\":%d,\"elements_each\":%lld,\"weight_every\":%d,\"steps\":%d,"
      "\"median_seconds\":%.9g,\"p99_seconds\":%.9g,\"process_bytes_allocated_per_step\":%.6g}\n",
      count, static_cast<long long>(numel), weight_every, steps, percentile(seconds, 0.5),
      percentile(seconds, 0.99), static_cast<double>(bytes) / steps);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 500;
  for (const int count : {10, 100, 1000, 10000})
    for (const int weight_every : {0, 50}) measure(count, 64, weight_every, steps);
  return 0;
}
