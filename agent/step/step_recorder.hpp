#pragma once
// The training thread's side of the agent: reads tensors at the right moments of a step and hands the
// results over. Once set up it neither waits, throws, logs nor takes a lock.
#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/step/losses.hpp"
#include "collectors/model/model_watch.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/steps/slot_gatherer.hpp"
#include "collectors/steps/step_builder.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"
#include "collectors/tensors/cpu_reader.hpp"
#include "collectors/tensors/device_reads.hpp"
#include "collectors/tensors/device_sample.hpp"
#include "collectors/tensors/update_sample.hpp"

namespace gradvane::agent {

using Clock = std::chrono::steady_clock;

class StepRecorder {
 public:
  /// `enabled` false: only clipping works, and nothing is published.
  StepRecorder(const Options& options, bool enabled);

  /// Host syncs are counted from now on: our own are booked apart, steps and phases are told. Null: no more.
  void count_syncs(collectors::SyncLedger* ledger) noexcept;

  /// As Agent::attach; returns the optimizer's index. Throws.
  int attach(std::unique_ptr<collectors::ModelSource> source);
  /// Forgets the optimizer, its parameters and the step it is in.
  void detach(int optimizer) noexcept;
  /// Makes plans for what was attached or detached since they were made. Where there are many optimizers,
  /// that waits until one of them does something: each time costs as much as all of them. Everything here
  /// that needs the plans calls it.
  void catch_up() noexcept {
    if (is_stale_) [[unlikely]]
      make_plans();
  }
  [[nodiscard]] int find(const void* optimizer_key) const noexcept {
    return watch_.find(optimizer_key);
  }
  /// Those that were detached included.
  [[nodiscard]] int optimizers() const noexcept { return watch_.optimizers(); }
  [[nodiscard]] bool is_detached(int optimizer) const noexcept {
    return watch_.is_removed(optimizer);
  }
  /// The optimizer that calls without one mean: the only one attached, else -1.
  [[nodiscard]] int only() const noexcept;

  /// The run step that `optimizer`'s step in progress will be.
  [[nodiscard]] std::int64_t run_step(int optimizer) noexcept;
  /// Host syncs of our own that the step in progress was asked to have.
  void excuse_syncs(std::int32_t count) noexcept { excused_syncs_ += count; }

  /// Adds a loss of the current step, whichever optimizer takes it.
  void take_loss(const at::Tensor& loss) noexcept;
  /// The same for the current step of one optimizer.
  void take_loss(int optimizer, const at::Tensor& loss, Losses::From from) noexcept;
  void count_micro_step() noexcept { ++micro_steps_; }

  /// A backward pass is about to begin. What was read and came to no step is handed over as superseded;
  /// an optimizer whose gradients are gone starts its step anew, unless `within_step`. Returns how many
  /// optimizers had gradients that are gone although no step was seen.
  int before_backward(bool within_step) noexcept;
  /// It has ended. An optimizer whose gradients it wrote to counts it, and takes `loss`.
  void after_backward(const at::Tensor& loss) noexcept;

  /// Whether a backward pass has written to the gradients of `optimizer` that no step was taken with, neither its
  /// own nor another optimizer's. They may have been read for a clip.
  [[nodiscard]] bool is_unused(int optimizer) const noexcept;
  /// Such gradients are about to be cleared, or have been: a loop that guards itself leaves a bad batch behind.
  /// Reads what is there, the loss at least, unless that was done, and hands it over as superseded.
  void discard(int optimizer) noexcept;
  /// Reads the gradients of `optimizer` for the current step, unless that was done already.
  void read_gradients(int optimizer, record::ReadAt where) noexcept;
  [[nodiscard]] const std::vector<at::Tensor>& params(int optimizer) const noexcept {
    return watch_.params(optimizer);
  }
  [[nodiscard]] bool has_read(int optimizer) const noexcept { return at(optimizer).has_read; }
  /// An optimizer that steps in parts while its gradients come and go, within the backward pass: reads
  /// the gradient of one parameter now, and all that were read so when the pass has ended. On CPUs; one
  /// on a device is unsupported.
  void read_part(int optimizer, const at::Tensor& param) noexcept;
  void publish_parts(int optimizer) noexcept;
  /// What a gradient scaler multiplies by, one element on a CPU or a device, and whether the gradients
  /// are still multiplied by it. Before the read; holds for the current step.
  void note_scale(int optimizer, const at::Tensor& scale, bool is_scaled) noexcept;
  /// Clipping to a total L2 norm by somebody else, of everything that was read.
  void note_clip(int optimizer, double max_norm) noexcept;
  /// Clipping by somebody else of which only a second look tells what became of the norm. On CPUs.
  void note_other_clip(int optimizer) noexcept { at(optimizer).reads_norm_again = true; }
  /// That second look, also taken where gradients have been written to since they were read: what became
  /// bad meanwhile is not lost. On CPUs, and not under a gradient scaler, which divides them. before_update()
  /// does it too.
  void look_again(int optimizer) noexcept;
  /// A closure has been evaluated within the optimizer's step. Gradients that it left bad are those of the
  /// step, since the next evaluation would spread them: on CPUs, where that is known at once.
  void after_evaluation(int optimizer) noexcept;
  /// Just before and just after the weights change.
  void before_update(int optimizer) noexcept;
  void after_update(int optimizer) noexcept;
  /// Ends the step of `optimizer` and hands it over. Has a value in immediate mode.
  std::optional<StepResult> finish(int optimizer,
                                   record::SkipReason skipped = record::SkipReason::none) noexcept;
  /// Hands over what was read and came to no step: the run ends here.
  void hand_over_unfinished() noexcept;
  /// Forgets the current step: the update threw.
  void abandon(int optimizer) noexcept;

  /// Clips the gradients of one optimizer, or of all with -1; returns the norm before, 0-dim fp64. Reads
  /// them for it, unless `just_read` says that the read of this step came right before. Throws what
  /// torch's operators throw, and std::bad_alloc.
  at::Tensor clip(int optimizer, double max_norm, bool just_read = false);
  /// Whether parameters of it are spread over processes, as of the last read.
  [[nodiscard]] bool is_sharded(int optimizer) const noexcept;
  /// The type in which torch's own clip returns the norm of these gradients.
  [[nodiscard]] at::ScalarType norm_type(int optimizer) const;
  /// The total L2 norm of the gradients of one optimizer as they are now, 0-dim fp64, NaN or Inf where one
  /// is; undefined where the pass cannot read them all, and of sharded parameters. Where it lies they do.
  /// Throws as clip().
  at::Tensor norm(int optimizer);

  void add_phase(Phase phase, Clock::duration time) noexcept;
  /// What is called from now on belongs to this phase (an index, or kNoPhase); returns the one before.
  int enter_phase(int phase) noexcept;
  void add_agent_time(Clock::duration time) noexcept { agent_time_ += time; }
  void log(std::string_view name, double value) noexcept;
  /// The same with one element, read where it is.
  void log(std::string_view name, const at::Tensor& value) noexcept;
  void count_tokens(std::int64_t tokens) noexcept { tokens_ += tokens, has_tokens_ = true; }
  void count_samples(std::int64_t samples) noexcept { samples_ += samples, has_samples_ = true; }

  [[nodiscard]] collectors::Handoff& handoff() noexcept { return handoff_; }
  void disable() noexcept { enabled_ = false; }

 private:
  /// How a gradient looked when it was read, to see whether it has been written to since.
  struct Stamp {
    const void* data = nullptr;
    std::uint32_t version = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  /// One optimizer's state within its current step, and its memory between steps.
  struct Watched {
    collectors::CpuReader gradients;
    collectors::CpuReader weights;
    collectors::DeviceReads device_gradients;
    collectors::DeviceReads device_weights;
    collectors::UpdateSample sample;
    collectors::DeviceSample device_sample;
    std::vector<kernels::Site> gradient_sites;
    std::vector<kernels::Site> weight_sites;
    std::vector<kernels::TensorStats> weight_stats;  ///< weights, then update samples
    std::vector<Stamp> stamps;

    std::int64_t step = 0;        ///< finished
    std::int64_t first_step = 0;  ///< finished before this process
    bool has_read = false;
    std::thread::id reader;   ///< who has read it
    std::thread::id trainer;  ///< who took its last step, of those whose backward passes are seen
    bool loss_in_gradients = false;
    bool on_host = false;          ///< what was read of the gradients: any of it on a CPU,
    std::size_t device_reads = 0;  ///< on how many devices,
    bool all_read = false;         ///< and whether nothing was unsupported
    bool reads_norm_again = false;
    int clips = 0;
    Losses losses;
    double loss_value = 0;  ///< of those on a CPU, when they were read
    std::int32_t backwards = 0;
    bool was_discarded = false;                ///< since the last backward pass began
    bool reads_weights = false;                ///< in the step whose update is under way
    std::uint32_t weights_answered = 0;        ///< of the worker's requests
    std::uint64_t last_pass = 0;               ///< the backward pass that wrote to it last
    double scale = 0;                          ///< 0: none on a CPU
    at::Tensor device_scale;                   ///< undefined: none on a device
    std::vector<std::size_t> watched_entries;  ///< by which a backward pass is seen to touch it
    std::vector<Stamp> before_backward;        ///< one for each of these
    bool has_started = false;
    std::vector<kernels::TensorStats> parts;               ///< by entry, while parts are read
    std::unordered_map<const void*, std::size_t> entries;  ///< of parameters, by TensorImpl
    collectors::StepFacts facts;                           ///< of the step in progress
  };

  static Stamp stamp_of(const at::Tensor& gradient) noexcept;
  static bool is_anothers(const Watched& watched) noexcept;
  static void note_trainer(Watched& watched) noexcept;
  void stamp_gradients(int optimizer) noexcept;
  static bool is_bad(const Watched& watched) noexcept;
  void make_room();
  void make_room(int optimizer);
  void make_plans() noexcept;
  static void release(Watched& watched) noexcept;
  void start(int optimizer) noexcept;
  /// What the loop itself handed over outdoes what backward passes showed.
  [[nodiscard]] const Losses& losses_of(const Watched& watched) const noexcept {
    return losses_.any() ? losses_ : watched.losses;
  }
  void forget_step(Watched& watched) noexcept;
  void forget_read(Watched& watched) noexcept;
  void hand_over_superseded(int optimizer) noexcept;
  void choose_watched_entries(Watched& watched);
  void publish_device_user(Watched& watched) noexcept;
  int user_metric(std::string_view name);
  void follow_changes(int optimizer) noexcept;
  bool scan_gradients(int optimizer) noexcept;
  void publish_gradients(int optimizer, record::ReadAt where) noexcept;
  void read_device_gradients(Watched& watched) noexcept;
  void follow_device(collectors::DeviceReads& reads) noexcept;
  void note_device_memory(Watched& watched) noexcept;
  void note_syncs(Watched& watched, bool has_waited) noexcept;
  static std::size_t devices_of(const Watched& watched) noexcept;
  [[nodiscard]] bool wait_for_devices(Watched& watched) noexcept;
  [[nodiscard]] at::Tensor clip_on_host(int begin, int end, double max_norm,
                                        const std::vector<at::Tensor>& gradients, bool is_current,
                                        bool all_ours);
  void read_once_more(int optimizer);
  [[nodiscard]] std::optional<double> host_norm(int begin, int end, bool is_current);
  [[nodiscard]] bool device_covers(int optimizer) const noexcept;
  [[nodiscard]] bool gradients_unchanged(int optimizer) const noexcept;
  [[nodiscard]] bool reads_weights(const Watched& watched) const noexcept;
  void publish_loss(Watched& watched, const collectors::ReadPlan& plan) noexcept;
  StepResult result_of(const collectors::StepFacts& facts);
  [[nodiscard]] bool leads(int optimizer) const noexcept;
  [[nodiscard]] std::int64_t next_run_step(int optimizer) const noexcept;
  Watched& at(int optimizer) noexcept { return *watched_[static_cast<std::size_t>(optimizer)]; }
  [[nodiscard]] const Watched& at(int optimizer) const noexcept {
    return *watched_[static_cast<std::size_t>(optimizer)];
  }

  Options options_;
  bool enabled_;
  collectors::SyncLedger* ledger_ = nullptr;
  std::optional<collectors::SyncMark> last_mark_;
  int phase_ = static_cast<int>(record::Phase::other);
  collectors::ModelWatch watch_;
  collectors::Handoff handoff_;
  collectors::SlotGatherer gatherer_;  ///< of immediate mode, as the next one
  collectors::StepBuilder builder_;
  std::vector<std::unique_ptr<Watched>> watched_;
  bool is_stale_ = false;         ///< attached or detached since the plans were made
  int planned_ = 0;               ///< optimizers that the plans were made for
  int leader_ = -1;               ///< the optimizer whose steps are the run's
  std::int64_t run_step_ = 0;     ///< of its last step; 0 before the first
  std::uint64_t passes_ = 0;      ///< backward passes that have ended
  std::uint64_t taken_pass_ = 0;  ///< the last one of those that a step was taken with

  // Of the step in progress, whichever optimizer ends it.
  Losses losses_;
  std::int32_t micro_steps_ = 0;
  std::array<Clock::duration, record::kPhases> phases_{};
  Clock::duration agent_time_{};
  std::optional<Clock::time_point> last_end_;
  std::int64_t tokens_ = 0;
  std::int64_t samples_ = 0;
  bool has_tokens_ = false;
  bool has_samples_ = false;
  bool new_names_ = false;
  std::array<double, record::kMaxUserMetrics> user_{};
  std::array<at::Tensor, record::kMaxUserMetrics> device_user_;
  bool has_device_user_ = false;
  collectors::DeviceReads device_user_reads_;
  collectors::CpuReader loss_reader_;
  collectors::CpuReader part_reader_;
  collectors::DeviceReads device_loss_reads_;
  std::int32_t refused_names_ = 0;
  std::int32_t excused_syncs_ = 0;
};

}  // namespace gradvane::agent
