#pragma once
// Gradvane's public C++ API: telemetry for a LibTorch training loop, in the process that trains.
//
//   gradvane::Agent agent({.run = "gpt"});
//   agent.attach(*model, optimizer);
//   for (...) { ...; loss.backward(); agent.step(optimizer, loss); }  // was: optimizer.step()
//
// Errors: set-up (the constructor, attach, Options) throws std::invalid_argument or
// std::runtime_error with a message that says what to change. Once training runs, nothing here
// throws, prints, aborts, waits for a device (in lagged mode), draws random numbers or touches the
// autograd graph. A fault in telemetry is counted and shown, and training goes on. Exceptions that
// the optimizer throws pass through.
//
// CUDA: gradients, weights and losses on a device are read on that device, on the current stream,
// also while the stream captures a graph. Each replay counts as a step. Memory that a captured
// graph writes to is never freed, so the graph may be replayed after the agent is destroyed.
//
// Threads: an Agent belongs to the training thread. Only url() and status() may be called from any
// thread. After fork() the child's copy does nothing. Two agents in one process are independent.
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

/// One thing that went wrong: opened by its first bad step, closed when it clears.
struct Incident;

/// When the results of a step are read. lagged: later, without waiting for a device. immediate: at
/// the end of the step, which waits once per device; end_step() and step() then return the step's
/// result.
enum class Mode : std::uint8_t { lagged, immediate };

/// Whether host syncs are counted. off: never. automatic: if possible. require: always; set-up
/// fails if it is not possible.
enum class Sync : std::uint8_t { off, automatic, require };

/// Decides between the ledger and PyTorch's profiler: CUPTI has one subscription. gate: the agent
/// keeps it, and KINETO_USE_DAEMON in the environment keeps the profiler off it. yield: the
/// profiler gets it while it runs. share: both, by CUPTI's own sharing (13.3 and later; every tool
/// must support it). automatic: yield in Python. In C++ the agent keeps it, since it cannot see a
/// profiler start.
enum class SyncProfiler : std::uint8_t { automatic, gate, yield, share };

/// The signal that requests a recording.
enum class RecorderSignal : std::uint8_t { none, usr1, usr2 };

/// Which steps are traced for the first module with a non-finite value (Python only). off: those
/// that the program requests. next_step: also the step after a non-finite incident opens. always:
/// all steps.
enum class TraceNonfinite : std::uint8_t { off, next_step, always };

/// Whether processes that hold shards of the same parameters exchange the norms of their shards.
enum class NormSharing : std::uint8_t { automatic, off };

/// Which ranks publish the gauges of groups. rank0: one of the run, local0: one per node. Where ranks hold the same
/// parameters, as under DDP, their gauges are equal. Counters, incidents, the page and the API have the groups of every
/// rank.
enum class GroupSeries : std::uint8_t { all, local0, rank0 };

/// Settings from code. The same keys exist on the command line as --gradvane-<key>=<value>, in the
/// environment as GRADVANE_<KEY>, and in a YAML file. The command line overrides the environment,
/// which overrides the file, which overrides code. docs/configuration.md describes every key.
struct Options {
  bool enabled = true;   ///< false: nothing is measured; so does GRADVANE=off in the environment
  std::string run = {};  ///< name of the run; default: the program's name
  /// Tells apart the runs of one name. Empty: what the launcher gives, else the time of the start.
  std::string run_id = {};
  std::string config = {};  ///< path of a YAML file; empty: none
  /// Directory of endpoint.rank<R>.json. Empty: gradvane-<uid>/<run> under the temporary directory.
  std::string run_dir = {};
  std::string address = "127.0.0.1";  ///< where the endpoint listens
  std::string allowed_hosts = {};     ///< further host names that requests may use
  /// Port of local rank 0; LOCAL_RANK is added. If it is taken, the next free one is used. 0: any
  /// free port. -1: no endpoint.
  int port = 9464;
  Mode mode = Mode::lagged;
  int weight_every = 50;     ///< steps between two reads of the weights; 0: weights are not read
  int update_sample = 4096;  ///< elements per parameter, for the update ratio; 0: no update ratio
  std::string groups = "auto";  ///< auto, depth:N, or name=regex;name=regex;...
  int max_groups = 150;
  GroupSeries group_series = GroupSeries::all;  ///< ranks whose groups have gauges in /metrics
  int max_series = 2000;              ///< per process; series beyond it are counted, not exported
  double vanishing_threshold = 1e-7;  ///< gradient norm of a parameter that counts as vanishing
  double exploding_threshold = 10.0;  ///< gradient norm of a parameter that counts as exploding
  int ring_slots = 0;         ///< reads that may wait for the worker; 0: 64 to 1,024, by the model
  int history_steps = 4096;   ///< steps kept for /api/v1/steps
  std::string step_log = {};  ///< file with one JSON object per step; empty: none
  std::int64_t step_log_max_bytes = 256 << 20;
  /// The run counts as stalled after this long without a step, and at least 20 median steps. 0: never.
  double stall_seconds = 300;
  /// Most seconds that one evaluation or checkpoint stops the stall clock.
  double stall_pause_seconds = 3600;
  /// How long the end of a run waits for one more scrape, if there was a scrape before.
  double linger_seconds = 5;
  /// The same wait when an incident is open or has not been scraped.
  double linger_incident_seconds = 15;
  bool expect_scraper = false;  ///< wait for a scrape even if there was none before
  std::int64_t start_step = 0;  ///< steps before this process; 0: from the optimizer's state
  int rank = -1;                ///< -1: the launcher's, else 0
  int local_rank = -1;          ///< -1: the launcher's, else 0
  int world_size = -1;          ///< -1: the launcher's, else 1
  Sync sync = Sync::automatic;
  int sync_budget = -1;        ///< host syncs per step above which an incident opens; -1: no limit
  int sync_budget_after = 10;  ///< first steps without a budget: they load code and fill caches
  int sync_threshold_us = 50;  ///< microseconds from which a call that may wait counts as a sync
  SyncProfiler sync_profiler = SyncProfiler::automatic;
  std::string sync_library = {};   ///< path of a libcupti; empty: it is searched for
  std::string sync_report = {};    ///< file for /api/v1/syncs at the end of the run; empty: none
  std::string detect = "default";  ///< incident classes to detect; docs/detectors.md
  double cooldown_seconds = 60;  ///< an incident that recurs within this time is reopened, not new
  int loss_window = 20;          ///< losses that each new loss is compared with
  double loss_sigma = 6;         ///< a spike is this many standard deviations above their mean,
  double loss_ratio = 3;         ///< this many times their mean,
  double loss_absolute = 0;      ///< and above this value; 0: any value
  int loss_in_a_row = 3;         ///< this many spikes in a row are a divergence
  double random_guess_loss = 0;  ///< loss of a random guess; 0: not known
  double exploding_factor = 10;  ///< gradient norm over the median of earlier steps
  double vanishing_share = 0.5;  ///< share of the parameters whose gradients vanish
  double drift_threshold = 2;    ///< change of the gradient norm, relative to its running mean
  int dead_after = 50;           ///< steps in a row in which all gradients of a group are zero
  int overflow_streak = 8;       ///< steps in a row that a gradient scaler skips
  double cost_budget = 0.05;     ///< share of a step's time that the hooks may take
  std::string alertmanager_url = {};  ///< Alertmanager that incidents are sent to; empty: none
  std::string alertmanager_labels =
      {};                         ///< "name=value,name=value", as Prometheus labels the target
  bool recorder = true;           ///< keep the last steps for a recording
  std::string recorder_dir = {};  ///< directory of recordings; default: run_dir
  int recorder_steps = 1000;      ///< most steps kept in memory
  std::int64_t recorder_memory_bytes = 64 << 20;  ///< most memory for them
  /// Size of a ring on disk, which survives a killed run. 0: none. -1: 32 MiB, or 8 MiB on a tmpfs.
  std::int64_t recorder_disk_bytes = -1;
  int recorder_kept = 8;                                  ///< most recordings kept per run and rank
  RecorderSignal recorder_signal = RecorderSignal::none;  ///< signal that requests a recording
  TraceNonfinite trace_nonfinite = TraceNonfinite::off;
  NormSharing norm_exchange = NormSharing::automatic;  ///< for the norms of sharded parameters
  /// Exports the last steps on SIGTERM, then ends the process by it. A second SIGTERM ends the
  /// process at once. It has no effect if the program handles SIGTERM itself.
  bool handle_sigterm = true;
  /// Receives the agent's few messages. Called on the agent's threads and during set-up.
  /// Default: one line with the address on the standard error, and nothing else.
  std::function<void(std::string_view line)> log = {};
  /// Receives every incident when it opens, when more is known about it, and when it clears. Called
  /// on the agent's thread, which waits for it. Exceptions that it throws are dropped.
  std::function<void(const Incident& incident)> on_incident = {};
  /// Settings as "key=value" that override the environment; take_arguments() returns such a list.
  std::vector<std::string> command_line = {};
};

/// Removes every --gradvane-<key>=<value> from argv and returns them as "key=value".
[[nodiscard]] GRADVANE_API std::vector<std::string> take_arguments(int& argc, char** argv);

/// Numbers of non-finite elements.
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

/// One site that became non-finite during an incident.
struct Appearance {
  std::int64_t run_step = 0;  ///< step of the read that found it
  Blame blame;
  /// Run step of the previous read, which was finite. Absent: there was no previous read.
  std::optional<std::int64_t> last_finite = std::nullopt;
};

struct Incident {
  std::int64_t id = 0;    ///< from 1, in the order of opening
  std::string_view kind;  ///< its class; docs/detectors.md lists them
  int rank = 0;
  std::int64_t first_step = 0;      ///< first bad step
  std::int64_t last_step = 0;       ///< latest bad step
  std::int64_t steps = 0;           ///< bad steps so far
  double opened_at = 0;             ///< seconds since the epoch
  std::optional<double> closed_at;  ///< seconds since the epoch; absent while it is open
  std::int32_t reopened = 0;        ///< times it recurred soon after it had cleared
  std::optional<Blame> blame;
  std::vector<Appearance> order;  ///< the sites in the order in which they became non-finite
  std::string began_in;           ///< forward, backward or update; empty if it is not known
  std::optional<std::int32_t> micro_step;  ///< of the first bad step, from 1; absent if not known
  std::string module;    ///< first non-finite module of a traced step; empty: none, or not traced
  std::string evidence;  ///< one sentence for the reader
};

/// One step, as far as it was measured.
struct StepResult {
  std::int64_t step = 0;            ///< of its optimizer, from 1
  std::int64_t run_step = 0;        ///< of the run, from 1
  int micro_steps = 1;              ///< backward passes in this step
  std::string_view read_at;         ///< none, clip, scaler, optimizer or backward
  std::string_view skipped;         ///< none, or why no weights changed: amp_overflow or loop
  std::optional<double> loss;       ///< may be NaN or Inf
  std::optional<double> grad_norm;  ///< L2 norm over finite elements, before clipping
  std::optional<double> grad_norm_at_step;  ///< L2 norm after clipping
  std::optional<double> clip_coefficient;
  std::optional<double> loss_scale;    ///< the gradient scaler's factor
  std::vector<double> learning_rates;  ///< one per param group
  NonfiniteCounts grad_nonfinite;
  std::optional<Blame> blame;
};

/// The state of the run at this moment. Reading it is cheap: it comes from memory.
struct Status {
  std::string state;  ///< starting, running, stalled, finished or failed; off if the agent is inert
  std::string reason;  ///< why it is off, or why the run failed
  std::int64_t steps = 0;
  std::int64_t nonfinite_steps = 0;  ///< steps with a non-finite loss or gradient
  double steps_per_second = 0;
  StepResult latest;
};

/// What the loop does at the moment. In evaluation and checkpoint no step is expected: the stall clock
/// stands still, for at most Options::stall_pause_seconds, and host syncs belong to no step.
enum class Phase : std::uint8_t {
  data,
  forward,
  backward,
  optimizer,
  other,
  evaluation,
  checkpoint
};

class Agent;

/// Counts the time from its construction to its end as one phase of the current step, except the time of
/// phases within it.
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

/// Names what this thread does during a block. Host syncs in the block are reported under that
/// name, since C++ has no file and line for them. `name` must live as long as the process, as a
/// literal does. Scopes nest. Any thread; takes nanoseconds.
class GRADVANE_API [[nodiscard]] Scope {
 public:
  explicit Scope(const char* name) noexcept;
  ~Scope();
  Scope(const Scope&) = delete;  // one scope, one block
  Scope& operator=(const Scope&) = delete;

 private:
  const char* before_;
};

/// Marks a block, such as an evaluation or a checkpoint, whose host syncs belong to no step. It
/// holds for the whole process. These host syncs have totals of their own and spend no budget. Any
/// thread; takes nanoseconds.
class GRADVANE_API [[nodiscard]] OutsideSteps {
 public:
  OutsideSteps() noexcept;
  ~OutsideSteps();
  OutsideSteps(const OutsideSteps&) = delete;  // one for each block
  OutsideSteps& operator=(const OutsideSteps&) = delete;
};

class GRADVANE_API Agent {
 public:
  /// Starts the worker and the endpoint. Throws std::invalid_argument for a bad option, naming the
  /// key, the value and what is allowed.
  explicit Agent(const Options& options = {});
  /// As stop(), or as fail() if an exception is leaving the scope, except that it waits for one
  /// more scrape.
  ~Agent();
  Agent(const Agent&) = delete;  // one agent, one run
  Agent& operator=(const Agent&) = delete;

  /// Watches the parameters of `optimizer`, named as `module` names them. Both must stay alive
  /// until stop() or the agent's end. Call it once per optimizer. Throws std::invalid_argument if
  /// the optimizer owns none of the module's parameters.
  void attach(torch::nn::Module& module, torch::optim::Optimizer& optimizer);
  /// Watches a module's parameters in a loop without a torch::optim optimizer. Such a loop calls
  /// begin_step(), after_backward() and end_step().
  void attach(torch::nn::Module& module);

  /// Runs optimizer.step() and measures around it. Returns the step in immediate mode.
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer);
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer, const at::Tensor& loss);
  /// For optimizers that evaluate a closure (LBFGS). Gradients are read after the step, and the
  /// loss is that of the last evaluation.
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer,
                                 const std::function<at::Tensor()>& closure);

  /// For loops that update the weights themselves:
  ///   begin_step(); ...backward...; after_backward(loss); ...update...; end_step();
  void begin_step() noexcept;
  void after_backward() noexcept;
  void after_backward(const at::Tensor& loss) noexcept;
  std::optional<StepResult> end_step() noexcept;

  /// Reports one backward pass of gradient accumulation that does not end the step. The step's loss
  /// is the mean of the losses passed for it, so pass each loss as it was before any division.
  void micro_step() noexcept;
  void micro_step(const at::Tensor& loss) noexcept;

  /// Clips the gradients of the attached parameters to a total L2 norm of `max_norm`, like
  /// torch::nn::utils::clip_grad_norm_ with error_if_nonfinite=false. If this is the first call of
  /// the step that reads the gradients, their norm comes from the statistics pass. After an earlier
  /// read (after_backward) they are read again, since a collective may have changed them. Returns
  /// the norm before clipping, a 0-dim fp64 tensor. It is NaN or Inf if a gradient has such an
  /// element. Throws what torch's operators throw, and std::bad_alloc.
  at::Tensor clip_grad_norm(double max_norm);

  /// Starts a phase of the current step, which lasts as long as the returned scope.
  PhaseScope phase(Phase which) noexcept;

  /// Sets a custom metric, exported as gradvane_user_metric{name}. The latest value in a step
  /// counts. At most 32 names are kept; values under further names are counted as dropped.
  void log(std::string_view name, double value) noexcept;
  /// The same for a tensor of one element, on a CPU or on a device. It does not wait for the
  /// device.
  void log(std::string_view name, const at::Tensor& value) noexcept;
  /// Adds work done since the last call to gradvane_tokens_total or gradvane_samples_total.
  void count_tokens(std::int64_t tokens) noexcept;
  void count_samples(std::int64_t samples) noexcept;

  /// Adds a collectable of prometheus-cpp to /metrics.
  void add_collectable(std::weak_ptr<prometheus::Collectable> collectable);

  /// The endpoint's address, http://address:port. Empty if there is no endpoint.
  [[nodiscard]] std::string url() const;
  [[nodiscard]] Status status() const;

  /// Waits until every finished step has been exported. Returns false if `timeout` comes first.
  bool flush(std::chrono::milliseconds timeout = std::chrono::seconds(5)) noexcept;

  /// Ends the run: exports the last steps, marks the run as finished and closes the endpoint. It
  /// does not wait for a scrape, as the destructor and exit() do. A second call does nothing.
  /// Afterwards the agent is inert.
  void stop() noexcept;
  /// As stop(), but the run counts as failed, with `reason`.
  void fail(std::string_view reason) noexcept;

 private:
  friend class PhaseScope;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradvane
