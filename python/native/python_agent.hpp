#pragma once
// The agent as the Python package drives it: from hooks around backward passes, clipping and optimizers.
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/session.hpp"
#include "collectors/tensors/finite_checks.hpp"
#include "python/native/parameter_owners.hpp"
#include "python/native/python_source.hpp"

namespace gradvane::python {

/// Called without the GIL, from one thread at a time: a lock sees to that, since backward passes may run
/// hooks on threads of their own. Nothing throws but the constructor, attach() and clipping; what goes
/// wrong is counted. In a forked child every call does nothing. To be held by a PythonAgentPtr.
class PythonAgent {
 public:
  /// `code` and `command_line` are "key=value". Throws std::invalid_argument and std::runtime_error.
  PythonAgent(std::string default_run, const std::vector<std::string>& code,
              std::vector<std::string> command_line);

  int attach(std::unique_ptr<PythonSource> source);
  /// False where this very thread is in a call of the agent's: to be tried again later.
  bool detach(int optimizer);

  /// As StepRecorder's.
  int before_backward(bool within_step);
  void after_backward(const at::Tensor& loss);
  /// It raised instead.
  void backward_failed();

  /// `scale`: what a gradient scaler multiplies by; undefined: there is none. Returns whether this call
  /// was the step's first, which reads.
  bool read(int optimizer, record::ReadAt where, const at::Tensor& scale, bool is_scaled);
  /// Optimizers of these that StepRecorder::is_unused() of; empty in nearly all calls.
  [[nodiscard]] std::vector<int> unused(const std::vector<int>& optimizers);
  /// As StepRecorder's; `scale` as in read().
  void discard(int optimizer, const at::Tensor& scale, bool is_scaled);
  void note_clip(const std::vector<int>& optimizers, std::optional<double> max_norm);
  void step_begins(int optimizer, bool has_closure);
  void step_ends(int optimizer, bool has_closure);
  void evaluated(int optimizer);
  void step_failed(int optimizer);
  void step_skipped(int optimizer);

  /// Steps of a loop without an optimizer: read after the backward pass, over when the next one begins.
  void loop_read(int optimizer);
  void loop_step_ends(int optimizer);

  /// An optimizer that steps within the backward pass, a few parameters at a time: around the pass, and
  /// before each of its steps.
  void parts_begin(int optimizer);
  void read_parts(int optimizer, const std::vector<at::Tensor>& params);
  void parts_end(int optimizer, const at::Tensor& loss);

  /// The optimizers that own `params`, TensorImpls, and whether these are all that were given a gradient.
  ParameterOwners::Owners owners(const std::vector<const void*>& params);

  at::Tensor grad_norm(int optimizer);
  [[nodiscard]] bool is_sharded(int optimizer);
  /// As StepRecorder::clip, with the norm in the type that torch returns it in.
  at::Tensor clip_grad_norm(int optimizer, double max_norm, bool just_read);

  void take_loss(const at::Tensor& loss);
  void log(const std::string& name, double value);
  void log(const std::string& name, const at::Tensor& value);
  void count(std::int64_t tokens, std::int64_t samples);

  StepResult record();
  Status status();
  std::string url();
  bool flush(double seconds);
  /// Ends the run. With `lingers` it waits for one more scrape: where the process ends.
  void stop(bool lingers);
  void fail(const std::string& reason, bool lingers);
  /// Before it is destroyed. False: a thread still uses this, here or in the parent of a fork.
  [[nodiscard]] bool close() noexcept;

  struct Event {
    std::optional<Incident> incident;
    bool is_over = false;  ///< the run has ended, and this is the last of it
  };
  /// Waits for an incident, a line, the end or the time to be over. Any thread.
  Event next_event(double seconds);
  /// Sharded parameters: from now on take_contributions() is called, until exchange_closes(). False where
  /// the option switches the exchange off.
  bool exchange_opens();
  void exchange_closes();
  /// The same after an error, which is counted.
  void exchange_failed();
  /// (step, optimizer, norm) of this process; waits for the first up to `seconds`. Any thread.
  std::vector<std::tuple<std::int64_t, int, double>> take_contributions(double seconds);
  /// The norm over all processes. Any thread.
  void give_norm(std::int64_t step, int optimizer, double norm);

  /// As the option says; off where the agent is.
  [[nodiscard]] TraceNonfinite trace_mode() const noexcept { return trace_mode_; }
  /// For one step that is watched.
  [[nodiscard]] std::unique_ptr<collectors::FiniteChecks> finite_checks();
  /// The answers, at the end of a step of `optimizer`: what that waits for is in the step's budget, and
  /// `seconds` of hooks are in its cost.
  std::vector<int> take_checks(collectors::FiniteChecks& checks, double seconds);
  /// Returns the run step that it is of.
  std::int64_t trace_found(int optimizer, record::TracedModule found);

  /// Calls `use` with this run's place at the ledger of host syncs, where it has one and while it is live.
  template <typename Use>
  void with_ledger(Use use) {
    const Turn turn(*this);
    if (session_.live() && session_.ledger() != nullptr) use(session_.seat());
  }

  /// The lines that the agent has to say since the last call. Any thread.
  std::vector<std::string> take_lines();

 private:
  void end(record::RunState state, std::string_view reason, bool lingers);
  void keep(std::optional<StepResult> result);
  void enter_phase(Phase phase);
  void leave_phase();

  std::mutex queue_mutex_;  ///< guards what follows; the worker puts in
  std::condition_variable came_;
  std::deque<Incident> incidents_;
  std::deque<std::string> lines_;
  bool has_ended_ = false;

  /// One thread at a time.
  class Turn {
   public:
    explicit Turn(PythonAgent& agent) : lock_(agent.mutex_), holder_(agent.holder_) {
      holder_.store(std::this_thread::get_id());
    }
    ~Turn() { holder_.store({}); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::lock_guard<std::mutex> lock_;
    std::atomic<std::thread::id>& holder_;
  };

  std::mutex mutex_;
  std::atomic<std::thread::id> holder_{};  ///< of the mutex; guards what follows
  std::optional<StepResult> immediate_;
  agent::Clock::time_point step_began_;
  agent::Clock::time_point backward_began_;
  std::vector<int> phases_;  ///< that were left for a backward pass or a step, the latest last
  ParameterOwners owners_;
  TraceNonfinite trace_mode_ = TraceNonfinite::off;
  const pid_t process_;
  agent::Session session_;
};

/// Leaks an agent that a thread may still use: one whose file hangs, or any in the parent of a fork.
struct DestroyIfUnused {
  void operator()(PythonAgent* agent) const noexcept {
    if (agent->close()) delete agent;
  }
};
using PythonAgentPtr = std::unique_ptr<PythonAgent, DestroyIfUnused>;

}  // namespace gradvane::python
