#pragma once
// What a run has had of snapshots of its state and of rollbacks to them, and whether its ranks agree on steps.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "record/names.hpp"
#include "record/rollback.hpp"

namespace gradvane::record {

/// What became of a snapshot that was due: it was committed, or why it was refused.
enum class SnapshotResult : std::uint8_t {
  committed,
  incident,     ///< the training's state was in doubt
  nonfinite,    ///< the copied bytes hold NaN or infinity
  memory,       ///< the host has too little
  unsupported,  ///< a tensor that cannot be copied
  capturing,    ///< a CUDA graph was captured
  written,      ///< something wrote the state while it was copied
  threads,      ///< optimizers step in several threads
  failed,       ///< an error
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<SnapshotResult> =
    std::to_array<std::string_view>({"committed", "incident", "nonfinite", "memory", "unsupported",
                                     "capturing", "written", "threads", "failed"});
inline constexpr int kSnapshotResults = kCount<SnapshotResult>;

/// Since the run began.
struct GovernorSummary {
  bool has_snapshots = false;  ///< they are taken, or were; else what is said of them is empty
  std::array<std::int64_t, kSnapshotResults> snapshots{};
  std::array<std::int64_t, kRollbackReasons> rollbacks{};
  // The newest good snapshot; absent: there is none.
  std::optional<std::int64_t> snapshot_step;  ///< run step
  std::optional<double> snapshot_age_seconds;
  /// False: ranks were to decide together, and this one decides alone now. Absent: they never were.
  std::optional<bool> ranks_agree;
};

}  // namespace gradvane::record
