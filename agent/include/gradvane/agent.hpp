#pragma once
// Gradvane's public C++ API: telemetry for a LibTorch training loop, in the process that trains.
//
//   gradvane::Agent agent({.run = "gpt"});
//   agent.attach(*model, optimizer);
//   for (...) { ...; loss.backward(); agent.step(optimizer, loss); }  // where optimizer.step() stood
//
// Set-up (the constructor, attach, Options) throws std::invalid_argument or std::runtime_error with a
// message that says what to change. Once training runs nothing here throws, prints, aborts, waits for
// a device (in lagged mode), draws random numbers or touches the autograd graph; what goes wrong in
// telemetry is counted, shown, and leaves training alone. Exceptions of the optimizer pass through.
//
// CUDA: gradients, weights and losses on a device are read there, on the current stream, also while it
// captures a graph; replays are counted as steps. What a captured graph writes to is never freed, so that
// the graph may be replayed when the agent has gone.
//
// Threading: one Agent belongs to the thread that trains. url(), status() and log() may be called from
// any thread. After fork() the child's copy is inert. Two agents in one process are independent.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#define GRADVANE_API [[gnu::visibility("default")]]

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}
namespace prometheus {
class Collectable;
}

namespace gradvane {

/// One thing that went wrong, once: opened by its first bad step, closed when it clears.
struct Incident;

/// When the results of a step are looked at: lagged never waits for a device; immediate waits once per
/// device and step, and end_step() / step() return this step's result.
enum class Mode : std::uint8_t { lagged, immediate };

/// Whether host syncs are counted: not, where they can be, or else the agent does not start.
enum class Sync : std::uint8_t { off, automatic, require };

/// What becomes of PyTorch's profiler, which wants the one subscription that CUPTI has: it was told to do
/// without (KINETO_USE_DAEMON, in the environment before the program starts), it gets it while it runs, or
/// CUPTI's own sharing is used (13.3 on; every tool must know it). automatic: yield from Python, where it is seen
/// to start; from C++, where it is not, the subscription stays ours, and a profiler finds none.
enum class SyncProfiler : std::uint8_t { automatic, gate, yield, share };

/// The signal that asks for a recording.
enum class RecorderSignal : std::uint8_t { none, usr1, usr2 };

/// Which steps are watched for the first module that goes bad, from Python: none unless it is asked for,
/// the one after a step that was not finite, or all of them.
enum class TraceNonfinite : std::uint8_t { off, next_step, always };

/// Whether processes that hold parts of the same parameters tell each other the norms of their parts.
enum class NormSharing : std::uint8_t { automatic, off };

/// What code may set. The same keys exist in YAML, as GRADVANE_<KEY> in the environment and as
/// --gradvane-<key>=<value> on the command line; strongest first: command line, environment, YAML file,
/// code, default. docs/configuration.md describes every key.
struct Options {
  bool enabled = true;      ///< GRADVANE=off in the environment leaves the program as if without us
  std::string run = {};     ///< name of the run; default: the program's name
  std::string config = {};  ///< YAML file; empty: none
  std::string run_dir =
      {};  ///< holds endpoint.rank<R>.json; empty: gradvane-<uid>/<run> under the temp dir
  std::string address = "127.0.0.1";
  std::string allowed_hosts = {};  ///< more names by which requests may call the endpoint
  int port = 9464;  ///< plus LOCAL_RANK; taken: the next free one; 0: any; -1: no endpoint
  Mode mode = Mode::lagged;
  int weight_every = 50;  ///< read weights every this many steps; 0: never
  int update_sample =
      4096;  ///< elements per parameter kept for the update ratio; 0: no update ratio
  std::string groups = "auto";  ///< auto, depth:N, or name=regex;name=regex;...
  int max_groups = 50;
  int max_series = 2000;              ///< per process; what is beyond is counted, not exported
  double vanishing_threshold = 1e-7;  ///< per-parameter gradient norm
  double exploding_threshold = 10.0;  ///< per-parameter gradient norm
  int ring_slots = 0;         ///< reads the worker may lag behind; 0: 64 to 1,024, by the model
  int history_steps = 4096;   ///< steps kept for /api/v1/steps
  std::string step_log = {};  ///< file of one JSON object a step; empty: none
  std::int64_t step_log_max_bytes = 256 << 20;
  double stall_seconds = 300;  ///< no step for this long: the run counts as stalled
  double linger_seconds =
      5;  ///< at the end, wait this long for one more scrape, if it was ever scraped
  double linger_incident_seconds =
      15;                       ///< the same where an incident has not been scraped, or is open
  bool expect_scraper = false;  ///< wait even where nothing was ever scraped
  std::int64_t start_step =
      0;          ///< steps done before this process; 0: taken from the optimizer's state
  int rank = -1;  ///< -1: RANK, LOCAL_RANK, WORLD_SIZE of the environment, else 0, 0, 1
  int local_rank = -1;
  int world_size = -1;
  Sync sync = Sync::automatic;
  int sync_budget = -1;        ///< host syncs a step may have; more is an incident; -1: any number
  int sync_budget_after = 10;  ///< steps that may have more: loading code, filling caches
  int sync_threshold_us = 50;  ///< what only may wait counts from this long on
  SyncProfiler sync_profiler = SyncProfiler::automatic;
  std::string sync_library = {};  ///< path of a libcupti; empty: the one that is there
  std::string sync_report = {};   ///< file that /api/v1/syncs is written to at the end; empty: none
  std::string detect = "default";  ///< classes of incidents that are judged; docs/detectors.md
  double cooldown_seconds = 60;    ///< an incident that comes back sooner is the same one
  int loss_window = 20;            ///< losses that a loss is compared with
  double loss_sigma = 6;           ///< standard deviations above their mean
  double loss_ratio = 3;           ///< and times their mean
  double loss_absolute = 0;        ///< and above this; 0: no such test
  int loss_in_a_row = 3;           ///< so many are a divergence, fewer a spike
  double random_guess_loss = 0;    ///< loss of a random guess; 0: not known
  double exploding_factor = 10;    ///< gradient norm over the median of those before
  double vanishing_share = 0.5;    ///< of the parameters
  double drift_threshold = 2;      ///< of the gradient norm from its running mean, relative to that
  int dead_after = 50;             ///< steps in which every gradient of a group is zero
  int overflow_streak = 8;         ///< steps in a row that a gradient scaler skips
  double cost_budget = 0.05;       ///< share of a step's time that the hooks may take
  std::string alertmanager_url = {};  ///< incidents are told there directly; empty: nowhere
  std::string alertmanager_labels =
      {};                         ///< "name=value,name=value", as Prometheus labels its target
  bool recorder = true;           ///< keep the last steps for a recording
  std::string recorder_dir = {};  ///< default: the run directory
  int recorder_steps = 1000;      ///< most steps in memory
  std::int64_t recorder_memory_bytes = 64 << 20;  ///< most memory they take
  /// Of a ring on disk, for runs that are killed. 0: none; -1: 32 MiB, or 8 MiB where the disk is a tmpfs.
  std::int64_t recorder_disk_bytes = -1;
  int recorder_kept = 8;                                  ///< most files of this run and rank
  RecorderSignal recorder_signal = RecorderSignal::none;  ///< asks for a recording
  TraceNonfinite trace_nonfinite = TraceNonfinite::off;
  NormSharing norm_exchange = NormSharing::automatic;  ///< of sharded parameters, between ranks
  bool handle_sigterm = true;  ///< export the last steps, then die by it, by a second one at once;
                               ///< only where nobody else handles it
  /// Receives the few lines the agent has to say. Called on the agent's threads and in set-up.
  /// Default: nothing is written anywhere.
  std::function<void(std::string_view line)> log = {};
  /// Receives every incident when it opens, when more is known of it, and when it clears. Called on the
  /// agent's thread, which waits for it; what it throws is dropped.
  std::function<void(const Incident& incident)> on_incident = {};
  /// "key=value", stronger than the environment; take_arguments() fills it.
  std::vector<std::string> command_line = {};
};

/// Removes every --gradvane-<key>=<value> from argv and returns them as "key=value".
[[nodiscard]] GRADVANE_API std::vector<std::string> take_arguments(int& argc, char** argv);

struct NonfiniteCounts {
  std::int64_t nan = 0, pos_inf = 0, neg_inf = 0;
};

/// The first non-finite element of a step.
struct Blame {
  std::string site;           ///< loss, grad or weight
  std::string kind;           ///< nan, pos_inf or neg_inf
  std::string param;          ///< empty for the loss
  std::int64_t element = -1;  ///< row-major linear index
};

/// One site that became non-finite within an incident.
struct Appearance {
  std::int64_t run_step = 0;  ///< of the read that found it
  Blame blame;
  /// Run step of the read before, which was finite; absent: there was none.
  std::optional<std::int64_t> last_finite = std::nullopt;
};

struct Incident {
  std::int64_t id = 0;    ///< from 1, in order of opening
  std::string_view kind;  ///< docs/detectors.md lists the classes
  int rank = 0;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;  ///< the latest bad one
  std::int64_t steps = 0;      ///< bad ones so far
  double opened_at = 0;        ///< seconds since the epoch
  std::optional<double> closed_at;
  std::int32_t reopened = 0;  ///< times it came back soon after it had cleared
  std::optional<Blame> blame;
  std::vector<Appearance> order;  ///< what became non-finite, the first one first
  std::string began_in;           ///< forward, backward or update; empty where it is not known
  std::optional<std::int32_t> micro_step;  ///< of the first bad step, from 1, where it can be told
  std::string module;    ///< first bad one of a watched step; empty: none, or not watched
  std::string evidence;  ///< one sentence for a person
};

/// One step, as far as it was measured.
struct StepResult {
  std::int64_t step = 0;
  std::int64_t run_step = 0;
  int micro_steps = 1;         ///< backward passes that went into it
  std::string_view read_at;    ///< none, clip, scaler, optimizer or backward
  std::string_view skipped;    ///< none, or why no weights changed: amp_overflow, governor or loop
  std::optional<double> loss;  ///< may be NaN or Inf
  std::optional<double> grad_norm;          ///< L2 over finite elements, before clipping
  std::optional<double> grad_norm_at_step;  ///< after clipping
  std::optional<double> clip_coefficient;
  std::optional<double> loss_scale;    ///< of a gradient scaler
  std::vector<double> learning_rates;  ///< by param group
  NonfiniteCounts grad_nonfinite;
  std::optional<Blame> blame;
};

/// What the agent knows at this moment; cheap, from memory.
struct Status {
  std::string state;   ///< starting, running, stalled, finished, failed; off when inert
  std::string reason;  ///< why it is off, or why the run failed
  std::int64_t steps = 0;
  std::int64_t nonfinite_steps = 0;  ///< steps with a non-finite loss or gradient
  double steps_per_second = 0;
  StepResult latest;
};

enum class Phase : std::uint8_t { data, forward, backward, optimizer, other };

class Agent;

/// Books the time from its construction to its end as one phase of the current step.
class GRADVANE_API [[nodiscard]] PhaseScope {
 public:
  PhaseScope(PhaseScope&& other) noexcept;
  PhaseScope& operator=(PhaseScope&&) = delete;
  ~PhaseScope();

 private:
  friend class Agent;
  PhaseScope(Agent* agent, Phase which) noexcept;
  Agent* agent_;
  Phase phase_;
  std::int64_t started_ns_;
  int before_;
};

/// Names what this thread does while it lives: host syncs are booked on that name, which C++ has no file
/// and line for. `name` must live as long as the process: a literal. Scopes nest; any thread; nanoseconds.
class GRADVANE_API [[nodiscard]] Scope {
 public:
  explicit Scope(const char* name) noexcept;
  ~Scope();
  Scope(const Scope&) = delete;  // one scope, one block
  Scope& operator=(const Scope&) = delete;

 private:
  const char* before_;
};

/// While one lives, anywhere in the process, what is waited for belongs to no step: evaluation, a checkpoint. It
/// stays in the totals, apart, and spends no budget. Any thread; nanoseconds.
class GRADVANE_API [[nodiscard]] OutsideSteps {
 public:
  OutsideSteps() noexcept;
  ~OutsideSteps();
  OutsideSteps(const OutsideSteps&) = delete;  // one for each block
  OutsideSteps& operator=(const OutsideSteps&) = delete;
};

class GRADVANE_API Agent {
 public:
  /// Starts the worker and the endpoint. Throws std::invalid_argument for a bad option, naming the key,
  /// the value and what is allowed.
  explicit Agent(const Options& options = {});
  /// stop() or, when an exception is leaving the scope, fail(); but this waits for one more scrape.
  ~Agent();
  Agent(const Agent&) = delete;  // one agent, one run
  Agent& operator=(const Agent&) = delete;

  /// Watches the parameters of `optimizer`, named as `module` names them. Both must outlive the agent or
  /// stop(). May be called once per optimizer. Throws std::invalid_argument where the optimizer owns
  /// none of the module's parameters.
  void attach(torch::nn::Module& module, torch::optim::Optimizer& optimizer);
  /// Watches a module's parameters in a loop that has no torch::optim optimizer; use the callbacks.
  void attach(torch::nn::Module& module);

  /// Runs optimizer.step() and measures around it. Returns the step in immediate mode.
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer);
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer, const at::Tensor& loss);
  /// For optimizers that evaluate a closure (LBFGS): gradients are read after the step; the loss is the
  /// last evaluation's.
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer,
                                 const std::function<at::Tensor()>& closure);

  /// For loops of one's own, around whatever updates the weights:
  ///   begin_step(); ...backward...; after_backward(loss); ...update...; end_step();
  void begin_step() noexcept;
  void after_backward() noexcept;
  void after_backward(const at::Tensor& loss) noexcept;
  std::optional<StepResult> end_step() noexcept;

  /// One backward pass of gradient accumulation that does not end the step. The step's loss is the mean
  /// of the losses handed over for it, so hand over the loss as it was before any division.
  void micro_step() noexcept;
  void micro_step(const at::Tensor& loss) noexcept;

  /// Clips the gradients of the attached parameters to a total L2 norm of `max_norm`, like
  /// torch::nn::utils::clip_grad_norm_ with error_if_nonfinite=false. Where this is the first call of the
  /// step that reads the gradients, their norm comes from the statistics pass; after an earlier read
  /// (after_backward) they are read again, since a collective may have changed them. Returns the norm
  /// before clipping, a 0-dim fp64 tensor; NaN or Inf where a gradient is.
  at::Tensor clip_grad_norm(double max_norm);

  PhaseScope phase(Phase which) noexcept;

  /// A number of one's own, shown as gradvane_user_metric{name}; the latest of a step counts. At most
  /// 32 names; further ones are counted as dropped.
  void log(std::string_view name, double value) noexcept;
  /// The same with one element on a CPU or a device, where it is read without waiting for it.
  void log(std::string_view name, const at::Tensor& value) noexcept;
  /// Work done since the last call, for gradvane_tokens_total and gradvane_samples_total.
  void count_tokens(std::int64_t tokens) noexcept;
  void count_samples(std::int64_t samples) noexcept;

  /// Adds collectables of prometheus-cpp to /metrics.
  void add_collectable(std::weak_ptr<prometheus::Collectable> collectable);

  /// http://address:port of the endpoint; empty without one.
  [[nodiscard]] std::string url() const;
  [[nodiscard]] Status status() const;

  /// Waits until every step handed over so far has been exported, or the time is over.
  bool flush(std::chrono::milliseconds timeout = std::chrono::seconds(5)) noexcept;

  /// Ends the run: exports what is left, marks it finished and closes the endpoint, without waiting for
  /// a scrape as the destructor and exit() do. Idempotent; afterwards the agent is inert.
  void stop() noexcept;
  /// The same, but the run counts as failed, for `reason`.
  void fail(std::string_view reason) noexcept;

 private:
  friend class PhaseScope;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradvane
