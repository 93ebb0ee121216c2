#pragma once
// What the training thread alone knows of a step, handed to the worker as one trivially copyable block.
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "collectors/steps/slot_reads.hpp"
#include "collectors/sync_ledger/sync_mark.hpp"
#include "kernels/tensor_stats.hpp"
#include "record/step_record.hpp"

namespace gradvane::collectors {

inline constexpr double kNotMeasured = -1;  ///< for values that are never negative

struct StepFacts {
  std::int64_t step = 0;
  std::int64_t run_step = 0;
  std::int32_t optimizer = 0;
  std::int32_t micro_steps = 1;
  double time = 0;       ///< wall clock, seconds since the epoch
  double monotonic = 0;  ///< the same moment on a clock that never jumps, seconds

  SlotReads reads{};
  bool captured =
      false;  ///< into a graph: the step is not taken now, but each time that is replayed
  std::int32_t losses = 1;  ///< that a device's loss is the sum of
  /// What the loop said behind the step that its loss was, in place of a finite one that was read; NaN: nothing.
  double loop_loss = std::numeric_limits<double>::quiet_NaN();
  std::int32_t bad_micro_step = 0;  ///< the first whose loss was not finite, from 1; 0: not known

  /// The rank that a bad step comes from; -1: not known, or ranks do not tell each other.
  std::int32_t first_bad_rank = -1;
  bool first_bad_loss = false;  ///< it was that rank's loss

  record::ReadAt read_at = record::ReadAt::none;
  record::SkipReason skipped = record::SkipReason::none;
  /// Above 0: the update was left to what the read of its gradients finds on the devices. If that is bad, nothing changed.
  /// The number is the governor's.
  std::int64_t left_to_device = 0;
  bool superseded = false;        ///< read, but no step came of it: told only if it was non-finite
  bool has_scaler = false;        ///< a gradient scaler is at work: overflow skips the step
  bool gradients_scaled = false;  ///< they were read before they were divided by its scale
  double clip_coefficient = kNotMeasured;
  double norm_after_clip = kNotMeasured;
  double clip_max_norm = kNotMeasured;  ///< the rest follows from the norm that was read

  std::int32_t lr_count = 0;
  std::int32_t user_count = 0;
  std::array<double, record::kMaxLearningRates> lr{};
  std::array<double, record::kMaxUserMetrics> user{};

  double step_seconds = kNotMeasured;
  double agent_seconds = 0;
  double rank_wait_seconds = kNotMeasured;
  std::array<double, record::kPhases> phase_seconds{};
  std::int64_t tokens = -1;
  std::int64_t samples = -1;
  std::int64_t device_allocated_bytes = -1;
  std::int64_t device_reserved_bytes = -1;
  std::int64_t device_peak_bytes = -1;
  std::int64_t device_limit_bytes = -1;
  std::int64_t device_allocation_retries = -1;  ///< since the process began, as the next one
  std::int64_t device_out_of_memory = -1;
  std::int32_t contiguous_copies = 0;
  std::int32_t refused_names = 0;  ///< user metrics that found no room

  // Host syncs are those between these two moments.
  SyncMark syncs_after{};
  SyncMark syncs_until{};
  std::int32_t own_sync_budget = 0;  ///< that Gradvane itself may have had
  bool syncs_unknown = false;        ///< they were counted, and which are this step's is not known

  /// For a replay: the moments are those of its capture, and no hook saw its own.
  void forget_syncs() noexcept {
    syncs_unknown = syncs_unknown || syncs_until.epoch != 0;
    syncs_after = syncs_until = {};
    own_sync_budget = 0;
  }
};
static_assert(std::is_trivially_copyable_v<StepFacts>);

/// What became of a slot's entry: TensorStats::absence, except that a tensor without elements is `empty`.
enum class EntryTag : std::int16_t {
  read,
  empty,
  frozen,
  missing,
  unsupported,
  elsewhere  ///< on another device: another slot of the same step has it
};

[[nodiscard]] inline EntryTag tag_of(const kernels::TensorStats& stats) noexcept {
  if (stats.absence != 0) return static_cast<EntryTag>(stats.absence);
  return stats.numel > 0 ? EntryTag::read : EntryTag::empty;
}
[[nodiscard]] inline kernels::TensorStats not_read(EntryTag tag) noexcept {
  kernels::TensorStats stats;
  stats.absence = static_cast<std::int16_t>(tag);
  return stats;
}

}  // namespace gradvane::collectors
