#pragma once
// The training thread's side of the agent: reads tensors at the right moments of a step and hands
// the results over. Once set up it neither throws, logs nor takes a lock, and waits in immediate mode
// and for a policy only.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/governor/governor.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/ranks/rank_record.hpp"
#include "agent/step/attached_optimizers.hpp"
#include "agent/step/backward_watch.hpp"
#include "agent/step/clipping.hpp"
#include "agent/step/facts/device_memory_facts.hpp"
#include "agent/step/facts/step_clock.hpp"
#include "agent/step/facts/step_counts.hpp"
#include "agent/step/facts/step_losses.hpp"
#include "agent/step/facts/step_syncs.hpp"
#include "agent/step/facts/user_metrics.hpp"
#include "agent/step/reads/device_finding.hpp"
#include "agent/step/reads/gradient_reader.hpp"
#include "agent/step/reads/immediate_results.hpp"
#include "agent/step/reads/own_gradients.hpp"
#include "agent/step/reads/part_reader.hpp"
#include "agent/step/reads/weight_reader.hpp"
#include "agent/step/replica_check.hpp"
#include "agent/step/run_steps.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::agent {

/// The one entrance for both faces of the agent. It has a part for each job, calls them in the
/// order of a step, and books their CUDA calls as Gradvane's own.
class StepRecorder {
 public:
  /// `enabled` false: only clipping works, and nothing is published. `governor` outlives it.
  StepRecorder(const Options& options, bool enabled, Governor& governor);

  /// Counts host syncs in `ledger` from now on, those of Gradvane separately. Null: no longer.
  void count_syncs(collectors::SyncLedger* ledger) noexcept { syncs_.count_in(ledger); }

  /// As Agent::attach; returns the optimizer's index. Throws.
  int attach(std::unique_ptr<collectors::ModelSource> source);
  /// Forgets the optimizer, its parameters and the step it is in.
  void detach(int optimizer) noexcept;
  /// Makes plans for what was attached or detached since they were made. Where there are many
  /// optimizers, that waits until one of them does something: each time costs as much as all of
  /// them. Everything here that needs the plans calls it.
  void catch_up() noexcept;
  [[nodiscard]] int find(const void* optimizer_key) const noexcept {
    return optimizers_.watch().find(optimizer_key);
  }
  /// The number of optimizers, detached ones included.
  [[nodiscard]] int optimizers() const noexcept { return optimizers_.watch().optimizers(); }
  [[nodiscard]] bool is_detached(int optimizer) const noexcept {
    return optimizers_.watch().is_removed(optimizer);
  }
  /// The optimizer that calls without one mean: the only one attached, else -1.
  [[nodiscard]] int only() const noexcept { return optimizers_.only(); }
  /// As AttachedOptimizers::is_capturing().
  [[nodiscard]] bool is_capturing() const noexcept { return optimizers_.is_capturing(); }

  /// The run step that `optimizer`'s step in progress will be.
  [[nodiscard]] std::int64_t run_step(int optimizer) noexcept { return run_.of(optimizer); }
  /// That of the run's last step; 0 before the first.
  [[nodiscard]] std::int64_t last_run_step() const noexcept { return run_.last(); }
  /// The step in progress has `count` host syncs of Gradvane's own, which the user requested.
  void excuse_syncs(std::int32_t count) noexcept { syncs_.excuse(count); }

  /// The next step shows itself: what is logged from now on belongs to it. Reads of gradients, backward passes and
  /// phases other than the optimizer's say so too.
  void next_step_begins() noexcept;

  /// Adds a loss of the current step, whichever optimizer takes it.
  void take_loss(const collectors::Tensor& loss) noexcept;
  /// The same for a loop that may log it right behind the step: it is that step's then.
  void log_loss(const collectors::Tensor& loss) noexcept;
  /// The same for the current step of one optimizer.
  void take_loss(int optimizer, const collectors::Tensor& loss, Losses::From from) noexcept;
  void count_micro_step() noexcept { counts_.add_micro_step(); }

  /// A backward pass is about to begin. What was read and came to no step is handed over as
  /// superseded; an optimizer whose gradients are gone starts its step again, unless `within_step`.
  /// Returns how many optimizers had gradients that are gone although no step was seen.
  int before_backward(bool within_step) noexcept;
  /// As BackwardWatch's.
  void set_several_train(bool several) noexcept { backward_.set_several_train(several); }
  [[nodiscard]] bool may_look_at(int optimizer) const noexcept {
    return backward_.may_look_at(optimizer);
  }
  /// It has ended. An optimizer whose gradients it wrote to counts it, and takes `loss`.
  void after_backward(const collectors::Tensor& loss) noexcept;
  /// It has raised instead.
  void backward_failed() noexcept { backward_.backward_failed(); }

  /// Whether a backward pass has written to the gradients of `optimizer` that no step was taken
  /// with, neither its own nor another optimizer's. They may have been read for a clip.
  [[nodiscard]] bool is_unused(int optimizer) const noexcept {
    return backward_.is_unused(optimizer);
  }
  /// Such gradients are about to be cleared, or have been: a loop that guards itself leaves a bad
  /// batch behind. Reads what is there, the loss at least, unless that was done, and hands it over
  /// as superseded.
  void discard(int optimizer) noexcept;
  /// Reads the gradients of `optimizer` for the current step, unless that was done already.
  void read_gradients(int optimizer, record::ReadAt where) noexcept;
  [[nodiscard]] const std::vector<collectors::Tensor>& params(int optimizer) const noexcept {
    return optimizers_.watch().params(optimizer);
  }
  [[nodiscard]] bool has_read(int optimizer) const noexcept {
    return optimizers_.at(optimizer).has_read;
  }
  /// An optimizer that steps in parts while its gradients come and go, within the backward pass:
  /// reads the gradient of one parameter now, and all that were read so when the pass has ended. On
  /// CPUs; one on a device is unsupported.
  void read_part(int optimizer, const collectors::Tensor& param) noexcept;
  void publish_parts(int optimizer) noexcept;
  /// What a gradient scaler multiplies by, one element on a CPU or a device, and whether the
  /// gradients are still multiplied by it. Before the read; holds for the current step.
  void note_scale(int optimizer, const collectors::Tensor& scale, bool is_scaled) noexcept;
  /// Another tool clips everything that was read to a total L2 norm.
  void note_clip(int optimizer, double max_norm) noexcept;
  /// Another tool clips, and only a second look shows what became of the norm. On CPUs.
  void note_other_clip(int optimizer) noexcept { clipping_.note_other_clip(optimizer); }
  /// That second look, also taken where gradients have been written to since they were read: what
  /// became bad meanwhile is not lost. On CPUs, and not under a gradient scaler, which divides
  /// them. before_update() does it too.
  void look_again(int optimizer) noexcept;
  /// A closure has been evaluated within the optimizer's step. Gradients that it left bad are those
  /// of the step, since the next evaluation would spread them: on CPUs, where that is known at
  /// once.
  void after_evaluation(int optimizer) noexcept;
  /// Just before and just after the weights change.
  void before_update(int optimizer) noexcept;
  void after_update(int optimizer) noexcept;
  /// Whether the update may be left to what the read of its gradients finds on the devices, where they have all been
  /// read. Before judge(), which then waits for nothing. Only for an optimizer that heeds found_on_devices().
  [[nodiscard]] bool leave_to_device(int optimizer) noexcept;
  /// If so: what was found on each, as DeviceReads::found_nonfinite(). Empty otherwise.
  [[nodiscard]] std::vector<collectors::Tensor> found_on_devices(int optimizer);
  /// What a gradient scaler would find in the gradients of the step in hand, if the option asks for it, they have all been
  /// read for it, in its step(), and this process has all of them. note_use() comes behind what uses it on devices.
  [[nodiscard]] std::optional<FoundInGradients> found_for_scaler(int optimizer) {
    return options_.found_inf_for_scaler ? gradients_.found_for_scaler(optimizer) : std::nullopt;
  }
  void note_use(int optimizer) noexcept { at(optimizer).device_gradients.note_use(); }
  /// The optimizer will heed it. If this is not called, the step counts as one that no policy acts on.
  void heeds_devices(int optimizer) noexcept;
  /// What the governor decides about the step in hand, from what was read of it. Between
  /// before_update() and the update. Nothing, where ranks agree. Where policies act on steps with
  /// non-finite values, it waits for what was read on devices: one host sync for each of them. It waits
  /// for nothing else.
  /// @param can_skip  false: the optimizer has begun to change the weights
  [[nodiscard]] Decision judge(int optimizer, bool can_skip = true) noexcept;
  /// The same by what all ranks know, in two halves: what to send to the others, and the decision by
  /// what all have sent. Precondition: Governor::agrees(), and the optimizer is attached.
  [[nodiscard]] std::array<char, ranks::kRecordBytes> tell(int optimizer, bool can_skip) noexcept;
  [[nodiscard]] Decision judge_together(int optimizer, bool can_skip,
                                        std::span<const std::string> records) noexcept;
  /// What this rank's gradients are before ranks average them.
  [[nodiscard]] OwnGradients& own_gradients() noexcept { return own_; }
  /// Ends the step of `optimizer` and hands it over. Has a value in immediate mode.
  /// @param is_taken_here  this thread has taken it; false: it is over since the next pass begins, in any thread
  std::optional<StepResult> finish(int optimizer,
                                   record::SkipReason skipped = record::SkipReason::none,
                                   bool is_taken_here = true) noexcept;
  /// Hands over what was read and came to no step: the run ends here.
  void hand_over_unfinished() noexcept;
  /// Forgets the current step: the update threw.
  void abandon(int optimizer) noexcept;

  /// Clips the gradients of one optimizer, or of all with -1; returns the norm before, 0-dim fp64.
  /// Reads them for it, unless `just_read` shows that the read of this step came right before.
  /// Throws what torch's operators throw, and std::bad_alloc.
  collectors::Tensor clip(int optimizer, double max_norm, bool just_read = false);
  /// Whether parameters of it are spread over processes, as of the last read.
  [[nodiscard]] bool is_sharded(int optimizer) const noexcept {
    return clipping_.is_sharded(optimizer);
  }
  /// A norm in the type in which torch's own clip returns that of these gradients.
  [[nodiscard]] collectors::Tensor as_torch_returns(int optimizer,
                                                    const collectors::Tensor& norm) const;
  /// The total L2 norm of the gradients of one optimizer as they are now, 0-dim fp64 where they
  /// lie, NaN or Inf where one is. Undefined where the pass cannot read them all, and for sharded
  /// parameters. Throws as clip().
  collectors::Tensor norm(int optimizer);

  void add_phase(Phase phase, Clock::duration time) noexcept { clock_.add_phase(phase, time); }
  /// Calls from now on belong to this phase (an index, or kNoPhase); returns the one before.
  int enter_phase(int phase) noexcept;
  /// Hooks hold an OwnTime, which calls this. Time that was measured elsewhere is added here.
  void add_agent_time(Clock::duration time) noexcept { clock_.add_agent_time(time); }
  /// Time that this thread waited for other ranks, whatever phase it was in.
  void add_rank_wait(Clock::duration time) noexcept { clock_.add_rank_wait(time); }
  /// For the step in progress; right behind a step, for that one. False if there are so many names already that this one
  /// is left out.
  bool log(std::string_view name, double value) noexcept;
  /// The same with one element, read where it is.
  bool log(std::string_view name, const collectors::Tensor& value) noexcept;
  void count_tokens(std::int64_t tokens) noexcept { counts_.add_tokens(tokens); }
  void count_samples(std::int64_t samples) noexcept { counts_.add_samples(samples); }

  [[nodiscard]] collectors::Handoff& handoff() noexcept { return handoff_; }
  void disable() noexcept { optimizers_.disable(); }

 private:
  void forget_step(OptimizerState& state) noexcept;
  OptimizerState& at(int optimizer) noexcept { return optimizers_.at(optimizer); }

  const Options options_;
  [[nodiscard]] StepFinding finding(int optimizer, bool can_skip) noexcept;

  Governor& governor_;
  collectors::Handoff handoff_;

  // Parts of the step in progress, whichever optimizer ends it.
  StepSyncs syncs_;
  StepClock clock_;
  StepCounts counts_;
  DeviceMemoryFacts memory_;
  StepLosses losses_;
  UserMetrics user_;

  // Parts that share the optimizers' state. Each uses only those above it.
  AttachedOptimizers optimizers_;
  RunSteps run_;
  WeightReader weights_;
  GradientReader gradients_;
  PartReader parts_;
  BackwardWatch backward_;
  Clipping clipping_;
  ImmediateResults results_;
  DeviceFinding devices_;
  ReplicaCheck replicas_;
  OwnGradients own_;
};

}  // namespace gradvane::agent
