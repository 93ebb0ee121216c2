#include "examples/char_gpt/training/training.hpp"

#include <torch/cuda.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <chrono>
#include <gradvane/agent.hpp>
#include <optional>

#include "examples/char_gpt/fault_injector.hpp"
#include "examples/char_gpt/interrupt.hpp"
#include "examples/char_gpt/progress.hpp"
#include "examples/char_gpt/terminal.hpp"
#include "examples/char_gpt/training/batches.hpp"
#include "examples/char_gpt/training/evaluation.hpp"
#include "examples/char_gpt/training/learning_rate.hpp"
#include "examples/char_gpt/training/model.hpp"

namespace char_gpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Loop {
 public:
  explicit Loop(const Training& training)
      : options_(training.options),
        model_(training.model),
        optimizer_(training.optimizer),
        agent_(training.agent),
        training_(training),
        parameters_(model_.parameters()),
        batches_(training.batches),
        faults_(training.faults),
        losses_(at::zeros({options_.shape.steps},
                          at::TensorOptions().dtype(at::kFloat).device(training.device))),
        progress_(options_.shape.steps, options_.log_every, training.terminal) {}

  TrainingResult run() {
    model_.train();
    TrainingResult result;
    auto segment = Clock::now();
    while (result.steps < options_.shape.steps && !ends()) {
      const auto start = Clock::now();
      const std::int64_t step = ++result.steps;
      train_one(step);
      result.step_seconds.push_back(seconds_since(start));

      const bool last = step == options_.shape.steps || ends();
      if (progress_.due(step, last)) show(step);
      if (options_.eval_every > 0 && step % options_.eval_every == 0 && !last) {
        result.seconds += finish_segment(segment);
        evaluate(step);
        segment = Clock::now();
      }
    }
    result.seconds += finish_segment(segment);
    training_.terminal.settle();

    const auto losses = losses_.narrow(0, 0, result.steps).cpu();
    const auto* first = losses.const_data_ptr<float>();
    result.losses.assign(first, first + result.steps);
    return result;
  }

 private:
  /// Ctrl-C, or a policy of the agent's, asks the loop to end.
  [[nodiscard]] bool ends() const {
    return interrupted() || (agent_ != nullptr && agent_->should_stop());
  }

  /// One optimizer step: this is where Gradvane stands in a training loop.
  void train_one(std::int64_t step) {
    const double rate = learning_rate(step, options_.shape.steps, options_.shape.learning_rate);
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(rate);
    optimizer_.zero_grad();

    const auto loss = accumulate_gradients();
    const bool read = read_gradients_early(step, loss);
    clip();
    const auto scope = phase(gradvane::Phase::optimizer);
    if (agent_ == nullptr) {
      optimizer_.step();
    } else if (read) {
      agent_->step(optimizer_);  // it knows the loss already
    } else {
      agent_->step(optimizer_, loss);
    }
    faults_.poison_state(step, optimizer_);
    if (agent_ != nullptr) agent_->count_tokens(tokens_per_step());
    losses_.select(0, step - 1).copy_(mean_loss_);
  }

  /// The backward passes of one step. Returns the loss of the last one.
  at::Tensor accumulate_gradients() {
    at::Tensor loss;
    at::Tensor sum;
    for (std::int64_t pass = 1; pass <= options_.accumulate; ++pass) {
      const auto batch = [&] {
        const auto scope = phase(gradvane::Phase::data);
        return batches_.next();
      }();
      {
        const auto scope = phase(gradvane::Phase::forward);
        loss = model_.loss(batch.tokens, batch.targets);
      }
      {
        const auto scope = phase(gradvane::Phase::backward);
        const auto share = static_cast<double>(options_.accumulate);
        (options_.accumulate == 1 ? loss : loss / share).backward();
      }
      loss = loss.detach();
      sum = sum.defined() ? sum + loss : loss;
      if (agent_ != nullptr && pass < options_.accumulate) agent_->micro_step(loss);
    }
    mean_loss_ = options_.accumulate == 1 ? sum : sum / static_cast<double>(options_.accumulate);
    return loss;
  }

  /// Injects the step's faults. The agent reads gradients by itself at the first of clip_grad_norm() and
  /// step(); where that is too late, because something changes them before, it is told to read now.
  /// True where it was.
  bool read_gradients_early(std::int64_t step, const at::Tensor& loss) {
    const bool transient = faults_.poison(step);
    const bool torch_clips = options_.max_norm > 0 && options_.clipper == Clipper::torch;
    const bool read = agent_ != nullptr && (transient || torch_clips);
    if (read) agent_->after_backward(loss);
    if (transient) faults_.restore();
    return read;
  }

  void clip() {
    norm_.reset();
    if (options_.max_norm == 0) return;
    if (agent_ != nullptr && options_.clipper == Clipper::agent) {
      agent_norm_ = agent_->clip_grad_norm(options_.max_norm);
    } else {
      // Returns a number, so it waits for a device; the agent's returns a tensor.
      norm_ = torch::nn::utils::clip_grad_norm_(parameters_, options_.max_norm);
    }
  }

  void show(std::int64_t step) {
    ProgressLine line;
    line.step = step;
    std::optional<gradvane::Status> status;
    if (agent_ != nullptr) status = agent_->status();
    if (status && status->state != "off") {
      line.nonfinite_steps = status->nonfinite_steps;
      line.url = agent_->url();
    }
    if (status && status->state != "off" && training_.device.is_cuda()) {
      // Reading this step's loss would make the CPU wait for the GPU. What the agent knows is some
      // steps old and costs nothing.
      line.step = status->latest.step;
      line.loss = status->latest.loss;
      line.norm = status->latest.grad_norm;
    } else {
      line.loss = mean_loss_.item<double>();
      line.norm = norm_;
      if (!norm_ && agent_norm_.defined()) line.norm = agent_norm_.item<double>();
    }
    progress_.show(line);
  }

  void evaluate(std::int64_t step) {
    const double loss = held_out_loss(model_, training_.text, training_.device);
    progress_.show_held_out(step, loss);
    if (agent_ != nullptr) agent_->log("held_out_loss", loss);
  }

  double finish_segment(Clock::time_point start) const {
    if (training_.device.is_cuda()) torch::cuda::synchronize();
    return seconds_since(start);
  }

  std::optional<gradvane::PhaseScope> phase(gradvane::Phase which) {
    if (agent_ == nullptr) return std::nullopt;
    return agent_->phase(which);
  }

  std::int64_t tokens_per_step() const {
    return options_.shape.batch * options_.shape.context * options_.accumulate;
  }

  const Options& options_;
  Gpt& model_;
  torch::optim::Optimizer& optimizer_;
  gradvane::Agent* agent_;
  const Training& training_;
  std::vector<at::Tensor> parameters_;
  RandomBatches& batches_;
  FaultInjector& faults_;
  at::Tensor losses_;  // on the device, so that keeping a loss does not wait for it
  Progress progress_;
  at::Tensor mean_loss_;
  at::Tensor agent_norm_;
  std::optional<double> norm_;
};

}  // namespace

std::shared_ptr<torch::optim::Optimizer> make_optimizer(const Gpt& model) {
  std::vector<at::Tensor> decayed;
  std::vector<at::Tensor> free;
  for (const auto& parameter : model.parameters()) {
    (parameter.dim() >= 2 ? decayed : free).push_back(parameter);
  }
  const auto options = [](double weight_decay) {
    auto result = std::make_unique<torch::optim::AdamWOptions>();
    result->betas({0.9, 0.99}).weight_decay(weight_decay);
    return result;
  };
  const std::vector<torch::optim::OptimizerParamGroup> groups = {{std::move(decayed), options(0.1)},
                                                                 {std::move(free), options(0.0)}};
  return std::make_shared<torch::optim::AdamW>(groups);
}

TrainingResult train(const Training& training) { return Loop(training).run(); }

}  // namespace char_gpt
