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

/// A good snapshot, which the run can go back to.
struct KeptSnapshot {
  std::int64_t run_step = 0;
  double age_seconds = 0;
};

/// Since the run began.
struct GovernorSummary {
  bool has_snapshots = false;  ///< they are taken, or were; else what is said of them is empty
  std::array<std::int64_t, kSnapshotResults> snapshots{};
  std::array<std::int64_t, kRollbackReasons> rollbacks{};
  std::optional<KeptSnapshot> newest_snapshot;
  std::optional<KeptSnapshot> older_snapshot;  ///< the generation before it
  /// False: ranks were to decide together, and this one decides alone now. Absent: they never were.
  std::optional<bool> ranks_agree;
};

}  // namespace gradvane::record
