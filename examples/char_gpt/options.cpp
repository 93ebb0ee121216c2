#include "examples/char_gpt/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <stdexcept>

#include "examples/char_gpt/exit_code.hpp"
#include "examples/char_gpt/training/text_data.hpp"

namespace char_gpt {
namespace {

constexpr const char* kDescription =
    "Trains a small GPT, one character at a time, with Gradvane attached.\n"
    "Open the URL it prints, or scrape it at /metrics, while it runs.";

constexpr const char* kFooter = R"(
Ctrl-C lets the current step finish, then evaluates, writes the sample and exits with 130; a second
Ctrl-C ends the program at once. Exit codes: 0 done, 1 failed, 2 bad option, 83 stopped by
--on-nonfinite, 130 interrupted.

--fault KIND@STEP[/EVERY][:PARAM][,transient|,state] (may be given several times) overwrites one
gradient element with nan, inf or -inf after the backward passes of optimizer step STEP (from 1;
with /EVERY again after each EVERY steps) and before the agent reads it: the middle one, number
numel/2 in row-major order, of PARAM (default blocks.0.attention.qkv.weight). As it is, the fault
goes on into the optimizer and ruins the weights as a real one would. With 'transient' the element
is put back after the agent read it and before clipping and the optimizer use it: training goes on,
bit for bit, as if nothing had been. With 'state', the element of AdamW's running mean of that
gradient is overwritten, after the step: no gradient shows it, and the next step ruins the weights.

The agent rounds the norm that it clips with differently from torch in the last digits. With
--clip-with torch, or --clip 0, a run is bit for bit the same with and without the agent.

Every option of the agent works here as --gradvane-KEY=VALUE, such as --gradvane-port=0.)";

std::string size_list() {
  std::string list;
  for (const auto& preset : kSizePresets) {
    list += std::string(preset.name) + ": " + std::to_string(preset.layers) + " layers, " +
            std::to_string(preset.heads) + " heads, width " + std::to_string(preset.width) +
            ",\n  context " + std::to_string(preset.context) + ": " + std::string(preset.purpose) +
            "\n";
  }
  list.pop_back();
  return list;
}

/// Replaces the preset's value where the command line has one.
template <class Value>
void prefer(const std::optional<Value>& given, Value& value) {
  if (given) value = *given;
}

/// The loss of every step is kept, 4 bytes each.
constexpr int kMaxSteps = 100'000'000;

/// What the command line says in place of the preset's values.
struct Given {
  std::string size = "small";
  std::string clip_with = "agent";
  std::string weights = "fp32";
  std::string on_nonfinite = "watch";
  std::optional<std::int64_t> steps, batch, context, sample;
  std::optional<double> learning_rate, dropout;
  std::vector<std::string> faults;
  bool no_agent = false;
  bool no_eval = false;
};

/// A check that does not put its limits into --help: the lines are long enough.
CLI::Validator plain(CLI::Validator check) { return check.description(""); }

void declare(CLI::App& app, Given& given, Options& options) {
  std::vector<std::string> sizes;
  sizes.reserve(kSizePresets.size());
  for (const auto& preset : kSizePresets) sizes.emplace_back(preset.name);
  // Of an option given twice the last one counts, so that a script can append to a command line.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  constexpr int kMany = 1'000'000'000;

  app.option_defaults()->group("Model (default: as the size has it)");
  app.add_option("--size", given.size, size_list())
      ->check(plain(CLI::IsMember(sizes)))
      ->type_name("NAME=small");
  app.add_option("--context", given.context, "characters the model sees at once")
      ->check(plain(CLI::Range(1, 1 << 20)))
      ->type_name("N");
  app.add_option("--dropout", given.dropout, "share of activations dropped in training, up to 0.9")
      ->check(plain(CLI::Range(0.0, 0.9)))
      ->type_name("SHARE");

  app.option_defaults()->group("Training (steps, batch, lr: default as the size has it)");
  app.add_option("--steps", given.steps, "optimizer steps")
      ->check(plain(CLI::Range(1, kMaxSteps)))
      ->type_name("N");
  app.add_option("--batch", given.batch, "sequences in one backward pass")
      ->check(plain(CLI::Range(1, 1 << 20)))
      ->type_name("N");
  app.add_option("--accumulate", options.accumulate, "backward passes in one optimizer step")
      ->check(plain(CLI::Range(1, 1 << 20)))
      ->type_name("N=1");
  app.add_option("--lr", given.learning_rate, "peak learning rate")
      ->check(plain(CLI::PositiveNumber))
      ->type_name("RATE");
  app.add_option("--clip", options.max_norm, "clip gradients to this norm; 0: do not")
      ->check(plain(CLI::NonNegativeNumber))
      ->type_name("NORM=1");
  app.add_option("--clip-with", given.clip_with,
                 "agent, with the norm that it reads anyway, or torch")
      ->check(plain(CLI::IsMember({"agent", "torch"})))
      ->type_name("WHO=agent");
  app.add_option("--seed", options.seed, "of weights, batches, dropout and the sample")
      ->type_name("N=1");
  app.add_option("--data", options.data, "a text file or a folder of them")
      ->default_val(std::string(kDefaultData))
      ->type_name("PATH");
  app.add_option("--device", options.device, "cpu, cuda, or auto: cuda where there is one")
      ->check(plain(CLI::IsMember({"cpu", "cuda", "auto"})))
      ->type_name("NAME=auto");
  app.add_option("--weights", given.weights, "fp32 or bf16: type of weights and gradients")
      ->check(plain(CLI::IsMember({"fp32", "bf16"})))
      ->type_name("TYPE=fp32");
  app.add_option("--threads", options.threads, "CPU threads; default: torch's own choice")
      ->check(plain(CLI::Range(1, 1024)))
      ->type_name("N");

  app.option_defaults()->group("Output");
  app.add_option("--log-every", options.log_every, "steps from line to line, off a terminal")
      ->check(plain(CLI::Range(1, kMany)))
      ->type_name("N=50");
  app.add_option("--eval-every", options.eval_every,
                 "steps from one held-out loss to the next;\ndefault: before and after the run")
      ->check(plain(CLI::Range(1, kMany)))
      ->type_name("N");
  app.add_flag("--no-eval", given.no_eval, "no held-out loss at all: for timing")
      ->excludes("--eval-every");
  app.add_option("--sample", given.sample, "characters of text written at the end")
      ->check(plain(CLI::Range(0, 1'000'000)))
      ->type_name("N");
  app.add_option("--json", options.json, "write a summary of the run")->type_name("FILE");
  app.add_option("--loss-log", options.loss_log, "write 'step loss' of every step, exactly")
      ->type_name("FILE");
  app.add_option("--step-times", options.step_times,
                 "write the seconds of every step, as the host sees them")
      ->type_name("FILE");

  app.option_defaults()->group("Telemetry");
  app.add_flag("--no-agent", given.no_agent,
               "train without Gradvane: --gradvane-... is ignored,\ntorch clips");
  app.add_option("--on-nonfinite", given.on_nonfinite,
                 "watch, skip, stop or rollback: what the agent does with a\nstep whose loss or "
                 "gradients are not finite")
      ->check(plain(CLI::IsMember({"watch", "skip", "stop", "rollback"})))
      ->type_name("POLICY=watch");
  app.add_option("--snapshot-every", options.snapshot_every,
                 "steps between two snapshots that a rollback goes back to")
      ->check(plain(CLI::Range(1, kMany)))
      ->type_name("N");
  app.add_option("--fault", given.faults, "poison a gradient element; see below")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->type_name("SPEC");
}

/// Throws std::invalid_argument.
std::vector<Fault> parse_faults(const std::vector<std::string>& texts, std::int64_t steps) {
  std::vector<Fault> faults;
  for (const auto& text : texts) {
    Fault fault = parse_fault(text);
    if (fault.step > steps) {
      throw std::invalid_argument("--fault " + text + ": the run ends at step " +
                                  std::to_string(steps) + "; ask for more --steps");
    }
    const bool twice = std::any_of(faults.begin(), faults.end(), [&](const Fault& other) {
      return other.step == fault.step && other.param == fault.param;
    });
    if (twice) {
      throw std::invalid_argument("--fault " + text +
                                  ": another fault already takes this element at this step");
    }
    faults.push_back(std::move(fault));
  }
  return faults;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, std::ostream& out,
                               std::ostream& err) {
  Given given;
  Options options;
  CLI::App app(kDescription, "char_gpt");
  app.footer(kFooter);
  app.get_formatter()->column_width(28);
  declare(app, given, options);
  try {
    app.parse(argc, argv);
    options.shape = *std::find_if(kSizePresets.begin(), kSizePresets.end(),
                                  [&](const auto& preset) { return preset.name == given.size; });
    prefer(given.steps, options.shape.steps);
    prefer(given.batch, options.shape.batch);
    prefer(given.context, options.shape.context);
    prefer(given.sample, options.shape.sample);
    prefer(given.learning_rate, options.shape.learning_rate);
    prefer(given.dropout, options.shape.dropout);
    options.agent = !given.no_agent;
    options.evaluate = !given.no_eval;
    const bool agent_clips = options.agent && given.clip_with == "agent";
    options.clipper = agent_clips ? Clipper::agent : Clipper::torch;
    if (given.weights == "bf16") options.weights = Weights::bf16;
    if (given.on_nonfinite == "skip") options.on_nonfinite = gradvane::NonfinitePolicy::skip;
    if (given.on_nonfinite == "stop") options.on_nonfinite = gradvane::NonfinitePolicy::stop;
    if (given.on_nonfinite == "rollback")
      options.on_nonfinite = gradvane::NonfinitePolicy::rollback;
    options.faults = parse_faults(given.faults, options.shape.steps);
  } catch (const CLI::ParseError& error) {
    const bool failed = app.exit(error, out, err) != 0;
    return {.options = std::nullopt, .exit_code = failed ? kExitBadOption : kExitDone};
  } catch (const std::invalid_argument& error) {
    err << error.what() << "\nRun with --help for more information.\n";
    return {.options = std::nullopt, .exit_code = kExitBadOption};
  }
  return {.options = std::move(options), .exit_code = kExitDone};
}

}  // namespace char_gpt
