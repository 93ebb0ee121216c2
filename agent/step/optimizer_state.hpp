#pragma once
// One optimizer's state within its current step, and its memory between steps.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <unordered_map>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/step/facts/losses.hpp"
#include "agent/step/gradient_stamp.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/cpu_reader.hpp"
#include "collectors/tensors/device_reads.hpp"
#include "collectors/tensors/device_sample.hpp"
#include "collectors/tensors/update_sample.hpp"

namespace gradvane::agent {

/// What backward passes have shown of one optimizer. BackwardWatch fills it.
struct SeenPasses {
  std::thread::id trainer;      ///< who took its last step, of those whose backward passes are seen
  std::int32_t backwards = 0;   ///< passes that wrote to its gradients, in the current step
  bool was_discarded = false;   ///< since the last backward pass began
  std::uint64_t last_pass = 0;  ///< the backward pass that wrote to it last
  std::vector<std::size_t> entries;            ///< by which a backward pass is seen to touch it
  std::vector<GradientStamp> before_backward;  ///< one for each of these

  /// Chooses entries among `count` parameters. Allocates.
  /// @param optimizers  that every pass is compared with
  void choose_entries(std::size_t count, int optimizers);
};

/// The classes of agent/step share it; each says which part it fills. Training thread only.
struct OptimizerState {
  collectors::CpuReader gradients;
  collectors::CpuReader weights;
  collectors::DeviceReads device_gradients;
  collectors::DeviceReads device_weights;
  collectors::UpdateSample sample;
  collectors::DeviceSample device_sample;
  std::vector<kernels::Site> gradient_sites;
  std::vector<kernels::Site> weight_sites;
  std::vector<kernels::TensorStats> weight_stats;  ///< weights, then update samples
  std::vector<GradientStamp> stamps;               ///< of the gradients as they were read

  std::int64_t step = 0;        ///< finished
  std::int64_t first_step = 0;  ///< finished before this process
  bool has_started = false;     ///< the two are known

  bool has_read = false;   ///< the gradients, for the current step
  std::thread::id reader;  ///< who has read it
  bool loss_in_gradients = false;
  bool on_host = false;          ///< what was read of the gradients: any of it on a CPU,
  std::size_t device_reads = 0;  ///< on how many devices,
  bool all_read = false;         ///< and whether nothing was unsupported
  bool reads_norm_again = false;
  int clips = 0;
  double loss_value = 0;                                 ///< of those on a CPU, when they were read
  double scale = 0;                                      ///< 0: none on a CPU
  at::Tensor device_scale;                               ///< undefined: none on a device
  bool reads_weights = false;                            ///< in the step whose update is under way
  std::uint32_t weights_answered = 0;                    ///< of the worker's requests
  std::vector<kernels::TensorStats> parts;               ///< by entry, while parts are read
  std::unordered_map<const void*, std::size_t> entries;  ///< of parameters, by TensorImpl

  Losses losses;  ///< of its own backward passes
  SeenPasses passes;
  collectors::StepFacts facts;  ///< of the step in progress

  /// Room for parameters, as a plan lists them. Allocates.
  /// @param enabled     false: nothing is published, so no samples of weights are kept on devices
  /// @param optimizers  that are attached
  void make_room(const std::vector<at::Tensor>& params, std::uint64_t plan_id,
                 const Options& options, bool enabled, int optimizers);
  /// Frees the room for parameters that are gone. What a device may still write to stays.
  void release() noexcept;
  /// Forgets what was read for the step in progress.
  void forget_read() noexcept;
  /// Whether the gradients that were read last held anything that is not finite.
  [[nodiscard]] bool is_bad() const noexcept;
};

}  // namespace gradvane::agent
