#pragma once
// The training loop, and where Gradvane stands in it.
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "examples/char_gpt/options.hpp"
#include "examples/char_gpt/training/text_data.hpp"

namespace gradvane {
class Agent;
}
namespace torch::optim {
class Optimizer;
}

namespace char_gpt {

class FaultInjector;
class Gpt;
class RandomBatches;
class Terminal;

/// What a run works on. All of it outlives the run.
struct Training {
  const Options& options;
  const Text& text;
  c10::Device device;
  Gpt& model;
  torch::optim::Optimizer& optimizer;
  RandomBatches& batches;
  FaultInjector& faults;
  gradvane::Agent* agent;  ///< null: without Gradvane
  Terminal& terminal;
};

struct TrainingResult {
  std::int64_t steps = 0;            ///< done; fewer than asked for after Ctrl-C or a stop
  double seconds = 0;                ///< in steps, the device's work included; evaluations left out
  std::vector<float> losses;         ///< of every step, before it
  std::vector<double> step_seconds;  ///< of every step, as the host sees it
};

/// AdamW that decays matrices and leaves biases and norms alone.
[[nodiscard]] std::shared_ptr<torch::optim::Optimizer> make_optimizer(const Gpt& model);

/// Trains until the steps are done or Ctrl-C came.
[[nodiscard]] TrainingResult train(const Training& training);

}  // namespace char_gpt
