#pragma once
// Gradvane's public C++ API: telemetry for a LibTorch training loop, in the process that trains.
//
//   gradvane::Agent agent({.run = "gpt"});
//   agent.attach(*model, optimizer);
//   for (...) { ...; loss.backward(); agent.step(optimizer, loss); }  // was: optimizer.step()
//
// Errors: set-up (the constructor, attach, Options) throws std::invalid_argument or
// std::runtime_error with a message that says what to change. Once training runs, nothing here
// throws, prints, aborts, waits for a device (in lagged mode, without a policy), draws random
// numbers or touches the autograd graph. A fault in telemetry is counted and shown, and training
// goes on. Exceptions that the optimizer throws pass through.
//
// CUDA: gradients, weights and losses on a device are read on that device, on the current stream,
// also while the stream captures a graph. Each replay counts as a step. Memory that a captured
// graph writes to is never freed, so the graph may be replayed after the agent is destroyed.
//
// Threads: an Agent belongs to the training thread. Only url(), status(), governor() and
// should_stop() may be called from any thread. After fork() the child's copy does nothing. Two
// agents in one process are independent.
#include <chrono>
#include <cstdint>
#include <functional>
#include <gradvane/options.hpp>
#include <gradvane/ranks.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}
namespace c10 {
class Stream;
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
  /// The latest run step before it that left the training's state good, as far as it was read.
  std::optional<std::int64_t> last_good_step = std::nullopt;
  /// Run step of the latest checkpoint that was seen (Phase::checkpoint), not after last_good_step.
  std::optional<std::int64_t> last_good_checkpoint = std::nullopt;
};

/// One step, as far as it was measured.
struct StepResult {
  std::int64_t step = 0;       ///< of its optimizer, from 1
  std::int64_t run_step = 0;   ///< of the run, from 1
  int micro_steps = 1;         ///< backward passes in this step
  std::string_view read_at;    ///< none, clip, scaler, optimizer or backward
  std::string_view skipped;    ///< none, or why no weights changed: amp_overflow, loop or governor
  std::optional<double> loss;  ///< may be NaN or Inf
  std::optional<double> grad_norm;          ///< L2 norm over finite elements, before clipping
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

/// What the policies on_nonfinite and on_divergence have done. docs/governor.md.
struct GovernorStatus {
  bool should_stop = false;  ///< a policy asks the loop to stop
  std::string reason;        ///< why, one sentence; empty: it does not
  std::int64_t skipped_steps = 0;
  int skips_in_a_row = 0;
  /// No NaN or infinity has reached the weights, and no incident of a divergence is open, as far as
  /// steps have been exported; flush() waits for them.
  bool is_state_good = true;
  std::int64_t last_good_step = 0;  ///< run step; 0: none yet
};

struct RollbackOptions {
  RollbackOptimizer optimizer = RollbackOptimizer::restore;
  /// Multiplies the learning rates of the snapshot, once more at each return to the same one.
  double lr_factor = 1;
};

/// What a rollback did.
struct Rollback {
  std::string reason = {};
  std::int64_t run_step = 0;    ///< the step after which it happened
  std::int64_t to_step = 0;     ///< the run step whose state is back
  std::int64_t generation = 0;  ///< number of the snapshot, from 1
  double snapshot_age_seconds = 0;
  double lr_factor = 1;    ///< what learning rates of the snapshot were multiplied by
  bool by_policy = false;  ///< false: the program called rollback()
};

/// A state of the program's own, as tensors on any device.
using SaveState = std::function<std::vector<at::Tensor>()>;
using LoadState = std::function<void(const std::vector<at::Tensor>&)>;

/// What the loop does at the moment. In evaluation and checkpoint no step is expected: the stall
/// clock stands still, for at most Options::stall_pause_seconds, and host syncs belong to no step.
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

/// Counts the time from its construction to its end as one phase of the current step, except the
/// time of phases within it.
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

  /// How this rank reaches the others, for Options::ranks = agree. Call it once on every rank, before
  /// attach(). Ranks of one node meet in shared memory then, which takes three calls of `gather` in
  /// the first step. If they are on several nodes, the first rank of each calls the AllGather that
  /// `among` returns, in each step. Without `among`, every rank calls `gather` in each step.
  /// docs/ranks.md. Throws std::invalid_argument if `gather` is empty.
  void agree_over(AllGather gather, GatherAmong among = {});

  /// Call it after the last backward pass of a step and before the program averages gradients over
  /// ranks, with Options::check_before_reduction: it reads the gradients on CPUs once, so that ranks
  /// that agree can name the one that a NaN comes from. Does nothing without that option.
  void before_reduction() noexcept;

  /// Runs optimizer.step() and measures around it. Returns the step in immediate mode. Under the
  /// policies skip, stop and rollback it does not run a step whose loss or gradients are not finite.
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer);
  std::optional<StepResult> step(torch::optim::Optimizer& optimizer, const at::Tensor& loss);
  /// For optimizers that evaluate a closure (LBFGS). Gradients are read after the step, and the
  /// loss is that of the last evaluation. No policy can skip such a step.
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

  /// Sets a custom metric of the step in progress, exported as gradvane_user_metric{name}. Right
  /// behind step() it is one of the step that was taken, unless it was ever set in front of a step:
  /// until a phase other than the optimizer's begins, gradients are read, or 250 ms have passed
  /// since the step's results arrived. The latest value in a step counts. At most 256 names are
  /// kept; values under further names are counted as dropped.
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

  /// What the policies have done. Any thread.
  [[nodiscard]] GovernorStatus governor() const;
  /// Whether a policy asks the loop to stop; step() never throws for it. A run that ends while this
  /// is true has failed, with the governor's reason. Any thread.
  [[nodiscard]] bool should_stop() const noexcept;

  /// Takes a snapshot of the training's state now: parameters and buffers of the attached modules,
  /// what the optimizers keep, their hyperparameters, and torch's random numbers on the CPU and on the
  /// devices. Between two steps. Waits until copies of a device's tensors have landed. False: it was
  /// refused, for example because something in it is not finite; the log has the reason.
  /// Options::snapshot_every and snapshot_seconds take them by themselves, without that wait.
  bool snapshot() noexcept;
  /// Goes back to the last good snapshot, in place, and drops the gradients. Between two steps.
  /// Throws std::runtime_error if there is none or the training no longer fits it, and
  /// std::invalid_argument for a bad lr_factor; nothing is changed then.
  Rollback rollback(std::string_view reason, const RollbackOptions& options = {});
  /// `callback` is called on the training thread after each rollback, those of a policy included.
  void on_rollback(std::function<void(const Rollback&)> callback);
  /// Adds to what snapshots hold: what `save` returns, for `load` to take back.
  void snapshot_state(std::string_view name, SaveState save, LoadState load);
  /// A stream that writes weights or state and is never the current one in a step: copies are ordered with it.
  void writes_on(const c10::Stream& stream);

  /// Waits until every finished step has been exported and every rollback so far is known. Returns false if `timeout`
  /// comes first, and at once in a callback of the worker's thread.
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
