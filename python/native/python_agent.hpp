#pragma once
// The agent as the Python package drives it: from hooks around backward passes, clipping and
// optimizers.
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "agent/governor/governor.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/session.hpp"
#include "agent/step/own_time.hpp"
#include "python/native/event_queue.hpp"
#include "python/native/parameter_owners.hpp"
#include "python/native/python_source.hpp"
#include "python/native/unseen.hpp"

namespace gradvane::python {

/// What reads tensors is called with the GIL, the rest without. A lock lets one thread in at a time, since
/// backward passes may run hooks on threads of their own. Only the constructor, attach(), grad_norm() and clip_grad_norm() throw;
/// other faults are counted. In a forked child every call does nothing. A PythonAgentPtr must own
/// it.
class PythonAgent {
 public:
  /// `code` and `command_line` are "key=value". Throws std::invalid_argument and
  /// std::runtime_error.
  PythonAgent(std::string default_run, const std::vector<std::string>& code,
              std::vector<std::string> command_line);

  /// -1: the run is switched off or over, and nothing is attached.
  int attach(std::unique_ptr<PythonSource> source);
  /// Returns false if this thread is inside another call of the agent: then try again later.
  bool detach(int optimizer);

  /// As StepRecorder's functions of these names.
  void set_several_train(bool several) noexcept { session_.recorder().set_several_train(several); }
  int before_backward(bool within_step);
  void after_backward(const collectors::Tensor& loss);
  /// The backward pass raised, so after_backward() is not called.
  void backward_failed();

  /// Reads the gradients at the step's first call, and returns whether it did.
  /// @param scale  what a gradient scaler multiplies by; undefined: there is none
  bool read(int optimizer, record::ReadAt where, const collectors::Tensor& scale, bool is_scaled);
  /// Those of `optimizers` that StepRecorder::is_unused() holds for. Empty in nearly all calls.
  [[nodiscard]] std::vector<int> unused(const std::vector<int>& optimizers);
  /// As StepRecorder's function; `scale` is as in read().
  void discard(int optimizer, const collectors::Tensor& scale, bool is_scaled);
  void note_clip(const std::vector<int>& optimizers, std::optional<double> max_norm);
  /// What the governor decides: unless it is `take`, the optimizer must leave the step out.
  /// @param heeds_device  it leaves out by itself a step that found_on_devices() says is bad
  agent::Verdict step_begins(int optimizer, bool has_closure, bool heeds_device);
  /// As StepRecorder's function.
  [[nodiscard]] std::vector<collectors::Tensor> found_on_devices(int optimizer) {
    const TimedCall call(*this);
    return call ? call->found_on_devices(optimizer) : std::vector<collectors::Tensor>();
  }
  /// As StepRecorder's functions.
  [[nodiscard]] std::optional<agent::FoundInGradients> found_for_scaler(int optimizer) {
    const TimedCall call(*this);
    return call ? call->found_for_scaler(optimizer) : std::nullopt;
  }
  void note_use(int optimizer) {
    if (const Call call(*this); call) call->note_use(optimizer);
  }
  void heeds_devices(int optimizer) {
    if (const Call call(*this); call) call->heeds_devices(optimizer);
  }
  /// What the governor decides where the closure came within the step: too late to leave it out.
  agent::Verdict step_ends(int optimizer, bool has_closure, bool is_left_out);
  void evaluated(int optimizer) {
    if (const TimedCall call(*this); call) call->after_evaluation(optimizer);
  }
  void step_failed(int optimizer);
  /// By a gradient scaler. What the governor decides about one that never gets over an overflow.
  agent::Verdict step_skipped(int optimizer);
  /// Where ranks agree: what this one sends to the others, and the decision by what all have sent.
  [[nodiscard]] std::string tell(int optimizer) {
    const TimedCall call(*this);
    if (!call) return {};
    const auto bytes = call->tell(optimizer, true);
    return {bytes.begin(), bytes.end()};
  }
  [[nodiscard]] agent::Verdict judge_together(int optimizer,
                                              const std::vector<std::string>& records) {
    const TimedCall call(*this);
    return call ? call->judge_together(optimizer, true, records).verdict : agent::Verdict::take;
  }
  /// The others cannot be asked, now and from now on.
  [[nodiscard]] agent::Verdict judge_alone(int optimizer, const std::string& why) {
    const TimedCall call(*this);
    if (!call) return agent::Verdict::take;
    governor().lose_agreement(why);
    return call->judge(optimizer).verdict;
  }
  /// By a hook of a backward pass, on any thread: a gradient is bad before ranks average it.
  void note_own_gradient(const collectors::Tensor& param, std::int64_t element) {
    if (const Call call(*this); call) call->own_gradients().note(param, element);
  }
  /// The thread that trains has waited for other ranks, in a backward pass or where ranks agree.
  void note_rank_wait(double seconds) {
    if (const Call call(*this); call)
      call->add_rank_wait(std::chrono::duration_cast<agent::Clock::duration>(
          std::chrono::duration<double>(seconds)));
  }
  [[nodiscard]] agent::Governor& governor() noexcept { return session_.governor(); }
  /// Run step of the latest step that ended, on the thread that trains; 0: there was none.
  [[nodiscard]] std::int64_t last_run_step() {
    const Call call(*this);
    return call ? call->last_run_step() : 0;
  }
  void note_rollback(record::Rollback rollback, bool is_by_policy) {
    if (const Turn turn(*this); turn)
      session_.governor().note_rollback(std::move(rollback), is_by_policy);
  }

  /// A phase that a thread is in.
  struct PhaseSpan {
    Phase phase;
    int before;                    ///< as Session::enter_phase() returned it
    agent::Clock::duration began;  ///< by UnbookedTime of `thread`
    std::thread::id thread;
  };
  /// Phases nest, and the inner one has the time. Any thread. Absent if the run is not live.
  std::optional<PhaseSpan> phase_begins(Phase phase);
  /// It has no time if another thread began it.
  void phase_ends(const PhaseSpan& span);
  /// +1, -1: as Session::outside_steps(). Any thread.
  void outside_steps(int delta);

  /// A loop without an optimizer has its step read after the backward pass. The step ends when the
  /// next backward pass begins.
  void loop_read(int optimizer);
  void loop_step_ends(int optimizer);

  /// For an optimizer that steps within the backward pass, a few parameters at a time. The first
  /// and the last are called around the pass, read_parts() before each of its steps.
  void parts_begin(int optimizer);
  void read_parts(int optimizer, const std::vector<collectors::Tensor>& params);
  void parts_end(int optimizer, const collectors::Tensor& loss);

  /// The optimizers that own `params` (TensorImpls), and whether `params` are all of their
  /// parameters with a gradient.
  ParameterOwners::Owners owners(const std::vector<const void*>& params);
  std::vector<int> owners_of_gradients(const std::vector<const void*>& gradients);

  collectors::Tensor grad_norm(int optimizer);
  [[nodiscard]] bool is_sharded(int optimizer);
  /// As StepRecorder::clip, with the norm in the type that torch returns it in.
  collectors::Tensor clip_grad_norm(int optimizer, double max_norm, bool just_read);

  void take_loss(const collectors::Tensor& loss);
  /// As StepRecorder::log().
  bool log(const std::string& name, double value);
  bool log(const std::string& name, const collectors::Tensor& value);
  void count(std::int64_t tokens, std::int64_t samples);

  StepResult record();
  Status status();
  std::string url();
  /// The name; empty if the agent is switched off.
  std::string run();
  /// A live run has the default name, so this one has its run_id behind it.
  bool is_renamed() { return session_.is_renamed(); }
  /// Of this process among those of its machine.
  int local_rank() { return session_.local_rank(); }
  bool flush(double seconds);
  /// Ends the run. With `lingers`, at the end of the process, it waits for one more scrape.
  void stop(bool lingers);
  void fail(const std::string& reason, bool lingers);
  /// Call it before the destructor. Returns false if a thread still uses this agent, here or in the
  /// parent of a fork: then it must be leaked.
  [[nodiscard]] bool close() noexcept;

  /// As EventQueue's functions. Any thread.
  std::pair<std::optional<Incident>, bool> next_event(double seconds);
  std::vector<std::string> take_lines();
  /// For sharded parameters: take_contributions() is called from now on, until exchange_closes().
  /// Returns false if the option switches the exchange off.
  bool exchange_opens();
  void exchange_closes();
  /// As exchange_closes(), after an error, which is counted.
  void exchange_failed();
  /// (step, optimizer, norm) of this process; waits for the first up to `seconds`. Any thread.
  std::vector<std::tuple<std::int64_t, int, double>> take_contributions(double seconds);
  /// The norm over all processes. Any thread.
  void give_norm(std::int64_t step, int optimizer, double norm);

  /// The option's value; off if the agent is off.
  [[nodiscard]] bool checks_before_reduction() const noexcept { return checks_before_reduction_; }
  [[nodiscard]] TraceNonfinite trace_mode() const noexcept { return trace_mode_; }
  /// Calls of CUDA on this thread are Gradvane's own from +1 to -1. Any thread.
  void own_calls(int delta) noexcept;
  /// A traced step took `host_syncs` to fetch its answers, which are allowed in its budget, and `seconds` of the
  /// agent's own time.
  void note_checks(std::int32_t host_syncs, double seconds);
  /// Returns the run step in which the module was found.
  std::int64_t trace_found(int optimizer, record::TracedModule found);

  /// Calls `use` with this run's seat at the ledger of host syncs, if it has one and is live.
  template <typename Use>
  void with_ledger(Use use) {
    const Call call(*this);
    if (call && session_.ledger() != nullptr) use(session_.seat());
  }

 private:
  void end(record::RunState state, std::string_view reason, bool lingers);
  void keep(std::optional<StepResult> result);
  void enter_phase(Phase phase);
  void leave_phase();

  /// One thread at a time. It is false where this thread is inside another call: garbage is collected anywhere,
  /// and what is collected may call.
  class Turn {
   public:
    explicit Turn(PythonAgent& agent) : agent_(agent), is_mine_(agent.begin_turn()) {}
    ~Turn() {
      if (is_mine_) agent_.end_turn();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const noexcept { return is_mine_; }

   private:
    PythonAgent& agent_;
    bool is_mine_;
    Unseen unseen_;
  };
  bool begin_turn();
  void end_turn() noexcept;

  /// A turn with the recorder. It is false if the run is not live: then there is nothing to do.
  class Call {
   public:
    explicit Call(PythonAgent& agent)
        : turn_(agent),
          recorder_(turn_ && agent.session_.live() ? &agent.session_.recorder() : nullptr) {}
    explicit operator bool() const noexcept { return recorder_ != nullptr; }
    agent::StepRecorder* operator->() const noexcept { return recorder_; }

   private:
    Turn turn_;
    agent::StepRecorder* recorder_;
  };

  /// A call whose time counts as the agent's own.
  class TimedCall : public Call {
   public:
    explicit TimedCall(PythonAgent& agent) : Call(agent) {
      if (*this) time_.emplace(agent.session_.recorder());
    }
    [[nodiscard]] agent::Clock::time_point began() const noexcept { return time_->began(); }
    agent::Clock::time_point stop() noexcept { return time_->stop(); }

   private:
    std::optional<agent::OwnTime> time_;
  };

  EventQueue events_;
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_{};  ///< of the mutex; guards what follows
  std::optional<StepResult> immediate_;
  const std::uint64_t number_;  ///< of this agent in the process, from 1
  std::vector<int> phases_;     ///< left for a backward pass or a step; the latest is last
  ParameterOwners owners_;
  TraceNonfinite trace_mode_ = TraceNonfinite::off;
  bool checks_before_reduction_ = false;
  const pid_t process_;
  agent::Session session_;
};

/// Leaks an agent that a thread may still use: one whose file hangs, or any in the parent of a
/// fork.
struct DestroyIfUnused {
  void operator()(PythonAgent* agent) const noexcept {
    if (agent->close()) delete agent;
  }
};
using PythonAgentPtr = std::unique_ptr<PythonAgent, DestroyIfUnused>;

}  // namespace gradvane::python
