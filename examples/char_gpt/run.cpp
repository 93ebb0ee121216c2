#include "examples/char_gpt/run.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <gradvane/agent.hpp>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "examples/char_gpt/exit_code.hpp"
#include "examples/char_gpt/fault_injector.hpp"
#include "examples/char_gpt/interrupt.hpp"
#include "examples/char_gpt/progress.hpp"
#include "examples/char_gpt/report.hpp"
#include "examples/char_gpt/terminal.hpp"
#include "examples/char_gpt/training/batches.hpp"
#include "examples/char_gpt/training/evaluation.hpp"
#include "examples/char_gpt/training/model.hpp"
#include "examples/char_gpt/training/text_data.hpp"
#include "examples/char_gpt/training/training.hpp"

namespace char_gpt {
namespace {

c10::Device choose_device(const std::string& name) {
  const bool has_cuda = name != "cpu" && torch::cuda::is_available();
  if (name == "cuda" && !has_cuda) {
    throw std::invalid_argument("--device cuda: torch sees no CUDA device; use --device cpu");
  }
  return has_cuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
}

GptShape gpt_shape(const SizePreset& preset, const Text& text) {
  return {.vocabulary = std::max<std::int64_t>(std::ssize(text.vocabulary), preset.embedding_rows),
          .layers = preset.layers,
          .heads = preset.heads,
          .width = preset.width,
          .context = preset.context,
          .dropout = preset.dropout};
}

/// 1234567 as 1,234,567.
std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto i = std::ssize(digits) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  }
  return digits;
}

void introduce(Terminal& terminal, const Options& options, const Text& text, const Gpt& model,
               const c10::Device& device) {
  std::ostringstream line;
  line << "char_gpt " << options.shape.name << ": " << grouped(model.parameter_count())
       << " parameters on " << device.str();
  if (device.is_cpu()) line << ", threads " << at::get_num_threads();
  terminal.print(line.str());

  line.str("");
  line << "text: " << grouped(text.files) << " files of " << options.data << ", "
       << text.vocabulary.size() << " different characters, " << grouped(std::ssize(text.training))
       << " to train on, " << grouped(std::ssize(text.held_out)) << " held out";
  terminal.print(line.str());
}

NamedTensors named_parameters(const Gpt& model) {
  NamedTensors result;
  for (const auto& item : model.named_parameters()) result.emplace_back(item.key(), item.value());
  return result;
}

gradvane::Options agent_options(const Options& chosen, std::vector<std::string> arguments,
                                Terminal& terminal) {
  gradvane::Options options;
  options.run = "char_gpt";
  options.log = [&terminal](std::string_view line) { terminal.print(line); };
  options.on_nonfinite = chosen.on_nonfinite;
  options.snapshot_every = static_cast<int>(chosen.snapshot_every);
  options.command_line = std::move(arguments);
  return options;
}

Summary summarise(const Options& options, const Gpt& model, const Text& text,
                  const c10::Device& device) {
  const SizePreset& shape = options.shape;
  return {.size = std::string(shape.name),
          .device = device.str(),
          .weights = options.weights == Weights::bf16 ? "bf16" : "fp32",
          .threads = at::get_num_threads(),
          .parameters = model.parameter_count(),
          .vocabulary = gpt_shape(shape, text).vocabulary,
          .tokens_per_step = shape.batch * shape.context * options.accumulate,
          .agent = options.agent};
}

void add_training(Summary& summary, const TrainingResult& result) {
  summary.interrupted = interrupted();
  summary.steps = result.steps;
  summary.seconds = result.seconds;
  if (result.losses.empty()) return;
  summary.first_loss = result.losses.front();
  summary.last_loss = result.losses.back();
}

}  // namespace

int run(const Options& options, std::vector<std::string> agent_arguments) {
  auto summary_file = open_output("--json", options.json);
  auto loss_file = open_output("--loss-log", options.loss_log);
  auto step_times_file = open_output("--step-times", options.step_times);
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  const auto device = choose_device(options.device);
  const Text text = read_text(options.data);

  at::manual_seed(options.seed);
  Gpt model(gpt_shape(options.shape, text));
  model.to(device, options.weights == Weights::bf16 ? at::kBFloat16 : at::kFloat);
  const auto optimizer = make_optimizer(model);
  RandomBatches batches(text.training, options.shape.batch, options.shape.context, device,
                        options.seed);
  FaultInjector faults(options.faults, named_parameters(model));

  Terminal terminal;
  introduce(terminal, options, text, model, device);
  Summary summary = summarise(options, model, text, device);
  terminal.print(
      {"ln(vocabulary): ", format_loss(std::log(static_cast<double>(summary.vocabulary)))});
  if (options.evaluate) {
    summary.held_out_before = held_out_loss(model, text, device);
    terminal.print({"held-out loss before training: ", format_loss(*summary.held_out_before)});
  }

  // Behind the model and the optimizer, so that it goes before them, however this function is left.
  std::optional<gradvane::Agent> agent;
  if (options.agent) {
    agent.emplace(agent_options(options, std::move(agent_arguments), terminal));
    agent->attach(model, *optimizer);
    agent->on_rollback([&](const gradvane::Rollback& rollback) {
      summary.rollbacks = summary.rollbacks.value_or(0) + 1;
      terminal.print("went back to the state after step " + std::to_string(rollback.to_step) +
                     ": " + rollback.reason);
    });
  }

  catch_interrupts();
  const auto result = train({.options = options,
                             .text = text,
                             .device = device,
                             .model = model,
                             .optimizer = *optimizer,
                             .batches = batches,
                             .faults = faults,
                             .agent = agent ? &*agent : nullptr,
                             .terminal = terminal});
  add_training(summary, result);
  if (summary.interrupted) terminal.print("interrupted: ending the run");
  std::string stopped;
  if (agent) {
    const gradvane::GovernorStatus governor = agent->governor();
    summary.skipped_steps = governor.skipped_steps;
    stopped = governor.reason;
    if (governor.should_stop) terminal.print("stopped: " + stopped);
  }

  if (options.evaluate) {
    summary.held_out_after = held_out_loss(model, text, device);
    terminal.print({"held-out loss: ", format_loss(*summary.held_out_after)});
  }
  if (options.shape.sample > 0) {
    terminal.print("sample:");
    terminal.print(sample(model, text, options.shape.sample, options.seed, device));
  }

  if (agent) {
    agent->stop();
    summary.nonfinite_steps = agent->status().nonfinite_steps;
  }
  summary.checksum = weights_checksum(model);
  write_summary(summary_file, summary);
  write_losses(loss_file, result.losses);
  write_step_times(step_times_file, result.step_seconds);
  if (!stopped.empty()) return kExitStopped;
  return summary.interrupted ? kExitInterrupted : kExitDone;
}

}  // namespace char_gpt
