#pragma once
// One optimizer's state within its current step, and its memory between steps.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/ranks/rank_record.hpp"
#include "agent/step/facts/losses.hpp"
#include "agent/step/reads/gradient_stamp.hpp"
#include "collectors/steps/read_plan.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/cpu_reader.hpp"
#include "collectors/tensors/device_reads.hpp"
#include "collectors/tensors/device_sample.hpp"
#include "collectors/tensors/update_sample.hpp"

namespace gradvane::agent {

/// What backward passes have shown of one optimizer. BackwardWatch writes it.
struct SeenPasses {
  std::weak_ptr<const char> trainer;  ///< the thread that took its last step, if it begins passes
  std::int32_t backwards = 0;         ///< passes that wrote to its gradients, in the current step
  bool was_discarded = false;         ///< since the last backward pass began
  std::uint64_t last_pass = 0;        ///< the backward pass that wrote to it last
  std::vector<std::size_t> entries;   ///< by which a backward pass is seen to touch it
  std::vector<GradientStamp> before_backward;  ///< one for each of these
  bool by_identity = false;                    ///< they are made and compared without the versions
  std::uint64_t stamped_in = 0;                ///< the pass before which they were made; 0: none

  /// Chooses entries among `count` parameters. Allocates.
  /// @param optimizers  that every pass is compared with
  void choose_entries(std::size_t count, int optimizers);
};

/// What the read of a step's gradients has found on devices.
struct DeviceFound {
  bool gradients_are_bad = false;  ///< some element is not finite
  bool loss_is_bad = false;        ///< it was read with the gradients, and is not finite
  double norm = 0;                 ///< as norm_of(), unscaled; of CPUs and devices together
};

/// What the read of a step's gradients has found, for whoever would look for it else.
struct FoundInGradients {
  /// Whether one on a CPU holds an element that is not finite; absent: there is none on a CPU.
  std::optional<bool> on_host;
  std::vector<collectors::Tensor> on_devices;  ///< as DeviceReads::nonfinite_gradients()
};

/// The parts of StepRecorder share it. Each group of fields names the part that writes it. Training
/// thread only.
struct OptimizerState {
  // GradientReader: how gradients are read, and what the read of the current step found.
  collectors::CpuReader gradients;
  collectors::DeviceReads device_gradients;
  std::vector<kernels::Site> gradient_sites;
  std::vector<GradientStamp> stamps;  ///< of the gradients as they were read, or clipped
  bool has_read = false;              ///< the current step has its read; PartReader sets it too
  std::thread::id reader;             ///< the thread that has read
  bool loss_in_gradients = false;     ///< the read includes the loss
  bool on_host = false;               ///< some of what was read is on a CPU
  std::size_t device_reads = 0;       ///< devices that were read on
  bool all_read = false;              ///< nothing was unsupported
  double read_norm = -1;              ///< of the step's read, on CPUs; -1: not kept
  double loss_value = 0;              ///< of the losses on a CPU, when they were read
  double scale = 0;                   ///< a gradient scaler's, on a CPU; 0: none
  collectors::Tensor device_scale;    ///< the same on a device; undefined: none

  // OwnGradients: in the first parameter whose gradient was bad before ranks averaged it.
  std::optional<ranks::BadElement> own_bad;

  std::int64_t left_as =
      0;  ///< number of the step in hand, if it may be left to the devices; StepRecorder

  // DeviceFinding, where the governor needs it before the update.
  std::size_t devices_waited = 0;
  std::optional<DeviceFound> found_on_devices;

  // Clipping: what other tools' clips were seen in the current step.
  bool reads_norm_again = false;  ///< only a second look shows the norm after the clip
  int clips = 0;

  // WeightReader: how weights are read, and whether they are in the step whose update is under way.
  collectors::CpuReader weights;
  collectors::DeviceReads device_weights;
  std::vector<kernels::Site> weight_sites;
  std::vector<kernels::TensorStats> weight_stats;  ///< weights, then update samples
  collectors::UpdateSample sample;
  collectors::DeviceSample device_sample;
  bool reads_weights = false;
  std::uint32_t weights_answered = 0;  ///< of the worker's requests

  // PartReader: gradients that were read one by one.
  std::vector<kernels::TensorStats> parts;               ///< by entry; empty: none
  std::unordered_map<const void*, std::size_t> entries;  ///< of parameters, by TensorImpl

  // RunSteps: steps that are finished.
  std::int64_t step = 0;
  std::int64_t first_step = 0;  ///< of them, those before this process
  bool has_started = false;     ///< the two are known

  SeenPasses passes;
  Losses losses;                ///< of its own backward passes
  collectors::StepFacts facts;  ///< of the step in progress; every part adds its own

  /// Room for parameters, as a plan lists them. Allocates.
  /// @param enabled     false: nothing is published, so no samples of weights are kept on devices
  /// @param optimizers  that are attached
  void make_room(const std::vector<collectors::Tensor>& params, std::uint64_t plan_id,
                 const Options& options, bool enabled, int optimizers);
  /// Frees the room for parameters that are gone. What a device may still write to is for the next pass there, as
  /// DeviceReads says.
  void release() noexcept;
  /// Forgets what was read for the step in progress.
  void forget_read() noexcept;
  /// Whether the gradients that were read last held anything that is not finite.
  [[nodiscard]] bool is_bad() const noexcept;
};

/// Whether any of what was read of some entries is not finite.
[[nodiscard]] bool any_nonfinite(std::span<const kernels::TensorStats> entries) noexcept;
/// L2, of the finite elements of the entries that were read. Of sharded parameters, what this process adds to the norm over
/// all processes: replicas count once.
/// @param shards  as ReadPlan::shards
[[nodiscard]] double norm_of(std::span<const kernels::TensorStats> entries,
                             std::span<const collectors::Shard> shards) noexcept;

}  // namespace gradvane::agent
