#pragma once
// What is known of one optimizer step: the one record that detectors judge and exporters write.
// A value that was not measured is absent, never 0.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "record/names.hpp"

namespace gradvane::record {

/// Where the gradients of a step were read (the first of these that the step reached).
enum class ReadAt : std::uint8_t { none, clip, scaler, optimizer, backward };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<ReadAt> =
    std::to_array<std::string_view>({"none", "clip", "scaler", "optimizer", "backward"});

/// Sites at which non-finite values are counted.
enum class Site : std::uint8_t { loss, grad, weight };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<Site> =
    std::to_array<std::string_view>({"loss", "grad", "weight"});
inline constexpr int kSites = kCount<Site>;

enum class NonfiniteKind : std::uint8_t { nan, pos_inf, neg_inf };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<NonfiniteKind> =
    std::to_array<std::string_view>({"nan", "pos_inf", "neg_inf"});
inline constexpr int kNonfiniteKinds = kCount<NonfiniteKind>;

/// Elements of each kind, indexed by NonfiniteKind.
using NonfiniteCounts = std::array<std::int64_t, kNonfiniteKinds>;
[[nodiscard]] inline bool any(const NonfiniteCounts& counts) noexcept {
  return std::any_of(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; });
}

enum class Phase : std::uint8_t {
  data,
  forward,
  backward,
  optimizer,
  other,
  evaluation,
  checkpoint
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<Phase> = std::to_array<std::string_view>(
    {"data", "forward", "backward", "optimizer", "other", "evaluation", "checkpoint"});
inline constexpr int kPhases = kCount<Phase>;
/// The first of them, up to `other`, are parts of a step. The rest comes between steps: its host
/// syncs belong to no step.
inline constexpr int kStepPhases = 5;

/// What one parameter's gradient was in this step.
enum class ParamState : std::uint8_t {
  frozen,       ///< requires_grad is false
  missing,      ///< trainable, but no gradient arrived
  empty,        ///< no elements
  zero,         ///< every element is zero
  finite,       ///< measured, all finite, not all zero
  nonfinite,    ///< at least one NaN or Inf
  unsupported,  ///< a dtype, layout or device this build cannot read
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<ParamState> =
    std::to_array<std::string_view>(
        {"frozen", "missing", "empty", "zero", "finite", "nonfinite", "unsupported"});
inline constexpr int kParamStates = kCount<ParamState>;

/// Why an optimizer step did not change the weights: a gradient scaler's doing, the loop's, or that
/// of the policy `on_nonfinite` or `on_divergence`.
enum class SkipReason : std::uint8_t { none, amp_overflow, loop, governor };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<SkipReason> =
    std::to_array<std::string_view>({"none", "amp_overflow", "loop", "governor"});

/// How a call made the CPU wait for the GPU.
enum class SyncKind : std::uint8_t {
  device,    ///< for everything on a device
  stream,    ///< for a stream
  event,     ///< for an event
  memcpy,    ///< a blocking copy
  d2h_read,  ///< an asynchronous copy to the host and a wait for it, from one place: `.item()`
  async_copy_blocked,   ///< an asynchronous copy that blocked all the same
  alloc_free,           ///< an allocation or a release that blocked
  module_load,          ///< loading code that blocked
  rejected_in_capture,  ///< refused, since the stream was being captured: it did not wait
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<SyncKind> =
    std::to_array<std::string_view>({"device", "stream", "event", "memcpy", "d2h_read",
                                     "async_copy_blocked", "alloc_free", "module_load",
                                     "rejected_in_capture"});
inline constexpr int kSyncKinds = kCount<SyncKind>;
/// By design. The others are judged by how long they took, or did not wait.
constexpr bool waits_surely(SyncKind kind) noexcept { return kind <= SyncKind::d2h_read; }

/// On whose behalf it was called.
enum class SyncOrigin : std::uint8_t { training, gradvane, profiler };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<SyncOrigin> =
    std::to_array<std::string_view>({"training", "gradvane", "profiler"});
inline constexpr int kSyncOrigins = kCount<SyncOrigin>;

/// The host syncs that began within one step.
struct StepSyncs {
  std::array<std::array<std::int32_t, kSyncKinds>, kSyncOrigins> calls{};
  std::array<double, kSyncOrigins> seconds{};  ///< blocked, rejected calls left out
  std::int32_t polls = 0;                      ///< queries of streams and events, by the training

  /// Those that waited.
  [[nodiscard]] std::int32_t count(SyncOrigin origin) const noexcept {
    std::int64_t sum = 0;  // a file may say anything
    for (int kind = 0; kind < kSyncKinds; ++kind)
      if (kind != static_cast<int>(SyncKind::rejected_in_capture))
        sum += calls[index_of(origin)][static_cast<std::size_t>(kind)];
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(
        sum, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
  }
};

/// The first non-finite element of a step.
struct FirstNonfinite {
  Site site = Site::grad;
  NonfiniteKind kind = NonfiniteKind::nan;
  std::int32_t param = -1;    ///< index into ModelInfo::params; -1 for the loss
  std::int64_t element = -1;  ///< linear (row-major) index in that parameter
};

inline constexpr int kMaxLearningRates = 64;
inline constexpr int kMaxUserMetrics = 256;
/// In the place of a custom metric that was not logged in a step. A NaN of its own: a loop may log another.
inline constexpr double kNotLogged = std::bit_cast<double>(std::uint64_t{0x7FF8'6E6F'6C6F'6700});
constexpr bool is_logged(double custom_metric) noexcept {
  return std::bit_cast<std::uint64_t>(custom_metric) != std::bit_cast<std::uint64_t>(kNotLogged);
}

/// Everything global about one optimizer step. Per group and per parameter detail is StepDetail.
struct StepRecord {
  std::int64_t step = 0;      ///< of this optimizer, from 1
  std::int64_t run_step = 0;  ///< of the run: counts those of the optimizer that leads it
  std::int32_t optimizer = 0;
  std::int32_t micro_steps = 1;  ///< backward passes that went into this step
  double time = 0;               ///< wall clock at the end of the step, seconds since the epoch
  double monotonic = 0;          ///< the same moment on a clock that never jumps, seconds

  /// The first micro-step whose loss was not finite, from 1; 0: none, or it cannot be told.
  std::int32_t bad_micro_step = 0;
  /// The rank that a non-finite value comes from. Absent: it is not known.
  std::optional<std::int32_t> first_bad_rank;
  bool first_bad_loss =
      false;  ///< it was that rank's loss; false: a gradient, before it was averaged

  std::optional<double> loss;               ///< may be NaN or Inf: then that was measured
  std::optional<double> grad_norm;          ///< L2 over finite elements, as read (before clipping)
  std::optional<double> grad_norm_at_step;  ///< after clipping
  std::optional<double> shard_grad_norm;    ///< where parameters are sharded: of the part here
  /// Of grad_norm's square, what this process brings to it: replicas count once over all of them.
  std::optional<double> norm_contribution;
  std::optional<double> clip_coefficient;  ///< in (0, 1]
  std::optional<double> loss_scale;
  ReadAt read_at = ReadAt::none;
  SkipReason skipped = SkipReason::none;
  bool overflow_persists =
      false;  ///< a gradient scaler has not got over it: no longer its own affair

  std::int64_t grad_numel = 0;  ///< elements read; 0 where no gradient was
  std::int64_t grad_zero = 0;
  std::int64_t grad_subnormal = 0;
  std::optional<double> grad_abs_max;
  std::optional<double> grad_abs_min_nonzero;
  std::optional<double> grad_abs_mean;
  std::optional<double> grad_health;  ///< preset esper_v1, in [0, 1]
  std::int32_t vanishing = 0;         ///< parameters with a gradient norm below the threshold
  std::int32_t exploding = 0;
  /// The optimizer's own parameters by ParamState; all 0 where its gradients were not read.
  std::array<std::int32_t, kParamStates> params{};

  std::array<NonfiniteCounts, kSites> nonfinite{};          ///< in this step
  std::array<std::optional<bool>, kSites> site_measured{};  ///< absent: that site was not read
  /// The earliest of the step: loss, gradient, weight.
  std::optional<FirstNonfinite> first_nonfinite;
  std::array<std::optional<FirstNonfinite>, kSites> first_by_site{};

  /// Since the run began. They also cover steps whose own record was dropped.
  std::array<NonfiniteCounts, kSites> nonfinite_total{};
  std::array<std::int64_t, kSites> nonfinite_steps_total{};

  std::optional<double> weight_norm;
  std::optional<double> update_ratio;  ///< estimate: ‖Δw‖ / ‖w‖ over a sample

  std::array<double, kMaxLearningRates> lr{};
  std::int32_t lr_count = 0;
  std::array<double, kMaxUserMetrics> user{};  ///< see is_logged()
  std::int32_t user_count = 0;

  std::optional<double> step_seconds;  ///< from the end of the step before
  std::array<double, kPhases> phase_seconds{};
  double agent_seconds = 0;  ///< of step_seconds: spent in the agent's own hooks
  /// Of step_seconds: spent waiting for other ranks. Absent: it cannot be seen.
  std::optional<double> rank_wait_seconds;
  std::optional<double> tokens;
  std::optional<double> samples;
  std::optional<double> model_flops_utilization;  ///< of peak_flops, averaged over some ten steps

  std::optional<std::int64_t> process_resident_bytes;
  std::optional<std::int64_t> device_allocated_bytes;
  std::optional<std::int64_t> device_reserved_bytes;
  std::optional<std::int64_t> device_peak_bytes;   ///< since the program reset torch's own peak
  std::optional<std::int64_t> device_limit_bytes;  ///< that torch's allocator may take
  /// Since the process began.
  std::optional<std::int64_t> device_allocation_retries;
  std::optional<std::int64_t> device_out_of_memory;

  std::optional<StepSyncs> syncs;    ///< absent where not every moment of the step was counted
  std::int32_t own_sync_budget = 0;  ///< syncs of origin `gradvane` that this step may have

  std::int64_t dropped_before = 0;  ///< records lost between the last one and this one
  std::int32_t contiguous_copies = 0;

  [[nodiscard]] bool has_nonfinite(Site site) const noexcept {
    return any(nonfinite[index_of(site)]);
  }
  [[nodiscard]] bool was_finite(Site site) const noexcept {
    return site_measured[index_of(site)].value_or(false) && !has_nonfinite(site);
  }
  /// False where the loop read gradients and took no step with them.
  [[nodiscard]] bool is_step() const noexcept { return skipped != SkipReason::loop; }
  /// Non-finite gradients that a gradient scaler got over by itself: they are no event, and are not
  /// in the totals.
  [[nodiscard]] bool is_handled_overflow() const noexcept {
    return skipped == SkipReason::amp_overflow && !overflow_persists;
  }
};
static_assert(std::is_trivially_copyable_v<StepRecord>);

/// One group in one step; index = ModelInfo::groups.
struct GroupStats {
  std::int32_t params = 0;  ///< parameters with a gradient that was read
  std::optional<double> grad_norm;
  std::optional<double> grad_abs_max;
  std::optional<double> grad_abs_min_nonzero;
  std::optional<double> grad_abs_mean;
  std::optional<double> grad_zero_ratio;
  std::optional<double> grad_subnormal_ratio;
  std::optional<double> weight_norm;
  std::optional<double> update_ratio;
  std::array<NonfiniteCounts, kSites> nonfinite{};
};

/// One tensor as the pass read it.
struct TensorNumbers {
  std::int64_t numel = 0;
  std::int64_t zero = 0;
  std::int64_t subnormal = 0;
  NonfiniteCounts nonfinite{};
  std::int64_t first_nonfinite = -1;  ///< row-major linear index, -1 if none
  double norm = 0;                    ///< over finite elements, as are all below
  double sum = 0;
  double abs_max = 0;
  double abs_min_nonzero = 0;  ///< +Inf where there is none
  double abs_mean = 0;
};

/// One parameter in one step; index = ModelInfo::params.
struct ParamStats {
  ParamState state = ParamState::missing;
  std::optional<TensorNumbers> grad;
  std::optional<TensorNumbers> weight;  ///< in steps that read weights
  std::optional<double> update_ratio;
};

/// Group and parameter detail of one step.
struct StepDetail {
  std::vector<GroupStats> groups;
  std::vector<ParamStats> params;
};

}  // namespace gradvane::record
