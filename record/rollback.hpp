#pragma once
// A return of the training to a snapshot of its state.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "record/names.hpp"

namespace gradvane::record {

/// What decided for it.
enum class RollbackReason : std::uint8_t {
  nonfinite,       ///< policy: a loss, gradient or weight that is not finite
  divergence,      ///< policy: an incident that is one
  skips_in_a_row,  ///< policy: too many skipped steps
  requested,       ///< the script called it
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<RollbackReason> =
    std::to_array<std::string_view>({"nonfinite", "divergence", "skips_in_a_row", "requested"});
inline constexpr int kRollbackReasons = kCount<RollbackReason>;

/// What becomes of the optimizers, in the order of gradvane::RollbackOptimizer.
inline constexpr auto kRollbackOptimizers =
    std::to_array<std::string_view>({"restore", "reset", "keep"});

struct Rollback {
  RollbackReason reason = RollbackReason::requested;
  std::string why = {};         ///< for a person, without a full stop
  std::int64_t run_step = 0;    ///< the step after which it happened
  std::int64_t to_step = 0;     ///< the run step whose state is back
  std::int64_t generation = 0;  ///< number of the snapshot, from 1
  double snapshot_age_seconds = 0;
  std::optional<std::int64_t> batches_lost = std::nullopt;  ///< absent: not known
  std::string optimizer{kRollbackOptimizers[0]};            ///< one of kRollbackOptimizers
  double lr_factor = 1;  ///< that learning rates of the snapshot were multiplied by
  double monotonic = 0;  ///< when it happened, as in StepRecord

  [[nodiscard]] std::int64_t steps_lost() const noexcept { return run_step - to_step; }
};

}  // namespace gradvane::record
