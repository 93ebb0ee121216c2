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
#include <vector>

#include "agent/handoff.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/slot_gatherer.hpp"
#include "collectors/cpu_reader.hpp"
#include "collectors/device_reads.hpp"
#include "collectors/device_sample.hpp"
#include "collectors/model_watch.hpp"
#include "collectors/step_builder.hpp"
#include "collectors/step_facts.hpp"
#include "collectors/update_sample.hpp"

namespace gradvane::agent {

using Clock = std::chrono::steady_clock;

class StepRecorder {
 public:
  /// `enabled` false: only clipping works, and nothing is published.
  StepRecorder(const Options& options, bool enabled);

  /// As Agent::attach. Throws.
  void attach(torch::nn::Module& module, torch::optim::Optimizer* optimizer);
  [[nodiscard]] int find(const torch::optim::Optimizer& optimizer) const noexcept {
    return watch_.find(optimizer);
  }
  /// The optimizer that calls without one mean: the only one attached, else -1.
  [[nodiscard]] int only() const noexcept { return watch_.optimizers() == 1 ? 0 : -1; }

  /// Adds a loss of the current step.
  void take_loss(const at::Tensor& loss) noexcept;
  void count_micro_step() noexcept { ++micro_steps_; }

  /// Reads the gradients of `optimizer` for the current step, unless that was done already.
  void read_gradients(int optimizer, record::ReadAt where) noexcept;
  /// Just before and just after the weights change.
  void before_update(int optimizer) noexcept;
  void after_update(int optimizer) noexcept;
  /// Ends the step of `optimizer` and hands it over. Has a value in immediate mode.
  std::optional<StepResult> finish(int optimizer) noexcept;
  /// Forgets the current step: the update threw.
  void abandon(int optimizer) noexcept;

  /// Clips the gradients of one optimizer, or of all with -1; returns the norm before, 0-dim. Throws
  /// what torch's operators throw, and std::bad_alloc.
  at::Tensor clip(int optimizer, double max_norm);

  void add_phase(Phase phase, Clock::duration time) noexcept;
  void add_agent_time(Clock::duration time) noexcept { agent_time_ += time; }
  void log(std::string_view name, double value) noexcept;
  void count_tokens(std::int64_t tokens) noexcept { tokens_ += tokens, has_tokens_ = true; }
  void count_samples(std::int64_t samples) noexcept { samples_ += samples, has_samples_ = true; }

  [[nodiscard]] Handoff& handoff() noexcept { return handoff_; }
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
    bool loss_in_gradients = false;
    bool on_host = false;          ///< what was read of the gradients: any of it on a CPU,
    std::size_t device_reads = 0;  ///< on how many devices,
    bool all_read = false;         ///< and whether nothing was unsupported
    collectors::StepFacts facts;   ///< of the step in progress
  };

  static Stamp stamp_of(const at::Tensor& gradient) noexcept;
  void make_room();
  void forget_step(Watched& watched) noexcept;
  void follow_changes(int optimizer) noexcept;
  bool scan_gradients(int optimizer) noexcept;
  void read_device_gradients(Watched& watched) noexcept;
  void follow_device(collectors::DeviceReads& reads) noexcept;
  void note_device_memory(Watched& watched) noexcept;
  [[nodiscard]] bool wait_for_devices(Watched& watched) noexcept;
  [[nodiscard]] at::Tensor clip_on_host(int begin, int end, double max_norm,
                                        const std::vector<at::Tensor>& gradients);
  [[nodiscard]] at::Tensor device_norm(int begin, int end) const;
  [[nodiscard]] bool gradients_unchanged(int optimizer) const noexcept;
  [[nodiscard]] bool reads_weights(const Watched& watched) const noexcept;
  void publish_loss(Watched& watched, const collectors::ReadPlan& plan) noexcept;
  StepResult result_of(const collectors::StepFacts& facts);
  Watched& at(int optimizer) noexcept { return *watched_[static_cast<std::size_t>(optimizer)]; }
  [[nodiscard]] const Watched& at(int optimizer) const noexcept {
    return *watched_[static_cast<std::size_t>(optimizer)];
  }

  Options options_;
  bool enabled_;
  collectors::ModelWatch watch_;
  Handoff handoff_;
  SlotGatherer gatherer_;  ///< of immediate mode, as the next one
  collectors::StepBuilder builder_;
  std::vector<std::unique_ptr<Watched>> watched_;
  int first_stepper_ = -1;

  // Of the step in progress, whichever optimizer ends it.
  double loss_ = 0;  ///< sum of those on a CPU
  std::int32_t losses_ = 0;
  at::Tensor device_loss_;  ///< sum of those on a device
  std::int32_t device_losses_ = 0;
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
  collectors::CpuReader loss_reader_;
  collectors::DeviceReads device_loss_reads_;
  double mean_loss_ = 0;
  std::int32_t refused_names_ = 0;
};

}  // namespace gradvane::agent
