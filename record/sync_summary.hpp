#pragma once
// Host syncs: calls that made the CPU wait for the GPU. What one step had of them, and what the whole
// process has had, with the places in the code that asked for them.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/names.hpp"
#include "record/step_record.hpp"

namespace gradvane::record {

/// Where the counts come from.
enum class SyncSource : std::uint8_t {
  off,     ///< nobody asked for them
  none,    ///< they cannot be had now; SyncReason says why
  cupti,   ///< our own subscription
  shared,  ///< the subscription of another part of Gradvane in this process
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<SyncSource> =
    std::to_array<std::string_view>({"off", "none", "cupti", "shared"});

enum class SyncReason : std::uint8_t {
  counting,      ///< and no other tool can be in the way
  gated,         ///< counting, and PyTorch's profiler has been told to leave the subscription to us
  switched_off,  ///< by option
  no_cuda,       ///< this process has not loaded the CUDA driver
  no_cupti,      ///< there is no libcupti
  no_driver,     ///< libcupti finds no driver
  taken,         ///< another tool has the one subscription that there is
  refused,       ///< by the driver: confidential computing, a virtual GPU, WSL, ...
  yielded,       ///< to PyTorch's profiler, until it is done
  lost,          ///< CUPTI calls us back no more: another tool has ended it, or it has ended itself
  proton,        ///< Triton's Proton is loaded, and could not start if we counted
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<SyncReason> =
    std::to_array<std::string_view>({"counting", "gated", "switched_off", "no_cuda", "no_cupti",
                                     "no_driver", "taken", "refused", "yielded", "lost", "proton"});

/// Which part of the run a host sync of the training belongs to.
enum class SyncPart : std::uint8_t {
  in_steps,       ///< on a thread that trains, within a step that has ended
  start_up,       ///< before the first step ended
  between_steps,  ///< on a thread that trains: outside of steps by its own word, or after the last step
  other_threads,  ///< on a thread that does not train: data loaders, communication, checkpoints
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<SyncPart> =
    std::to_array<std::string_view>({"in_steps", "start_up", "between_steps", "other_threads"});
inline constexpr int kSyncParts = kCount<SyncPart>;

/// Why counts or their details are missing.
enum class SyncDrop : std::uint8_t {
  threads,     ///< more threads at once than there are tables
  sites,       ///< more places than there is room for: counted under `other`
  events,      ///< which step it was in is not known
  unbalanced,  ///< the beginning of a call was not seen, or its end
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<SyncDrop> =
    std::to_array<std::string_view>({"threads", "sites", "events", "unbalanced"});
inline constexpr int kSyncDrops = kCount<SyncDrop>;

struct SyncTally {
  std::int64_t calls = 0;
  double seconds = 0;  ///< that the calling threads were blocked
};

/// The location of what found no room of its own.
inline constexpr std::string_view kOtherLocation = "other";

/// One place in the code, with one kind of sync.
struct SyncSite {
  std::int64_t id = 0;  ///< from 1; the same place and kind keeps it
  SyncKind kind = SyncKind::stream;
  SyncOrigin origin = SyncOrigin::training;
  std::optional<Phase> phase;      ///< of the training step; absent: not known
  std::string location;            ///< short, for labels: "train.py:41", "libfoo.so!f+0x12"
  std::string file;                ///< as the interpreter has it; empty without a Python frame
  std::int32_t line = 0;           ///< 0 without a Python frame
  std::string function;            ///< qualified name, scope name or symbol
  std::vector<std::string> stack;  ///< "file:line function", callers of it, innermost first
  std::string thread;              ///< name of the first thread it was seen on
  SyncTally total;
  SyncTally in_steps = {};  ///< of them
  double max_seconds = 0;   ///< the longest one
};

/// One place in one step.
struct StepSyncSite {
  std::string location;
  SyncKind kind = SyncKind::stream;
  std::int32_t calls = 0;
  double seconds = 0;
};

/// The process since the ledger began. Totals are complete but for `dropped`; nothing here is known of
/// the time that `blind_seconds` counts.
struct SyncSummary {
  SyncSource source = SyncSource::off;
  SyncReason reason = SyncReason::switched_off;
  std::string detail;  ///< for a person: who has the subscription, CUPTI's own word for an error

  std::array<std::array<SyncTally, kSyncKinds>, kSyncOrigins> totals{};
  std::array<SyncTally, kSyncParts> parts{};      ///< origin `training`, without rejected calls
  std::array<SyncTally, kStepPhases> by_phase{};  ///< the same, of steps
  std::array<SyncTally, kSyncOrigins> polls{};
  std::array<std::int64_t, kSyncDrops> dropped{};
  double covered_seconds = 0;  ///< that were counted
  double blind_seconds = 0;    ///< that were not
  std::int64_t gaps = 0;       ///< times that counting stopped

  std::int64_t steps = 0;              ///< seen while counting
  std::int64_t whole_steps = 0;        ///< of them, counted from end to end
  std::optional<std::int32_t> budget;  ///< of a step, for origin `training`: sure waits
  std::int32_t own_budget = 0;         ///< of a step, for origin `gradvane`
  std::array<std::int64_t, kSyncOrigins> steps_over{};  ///< steps over the budget
  std::int64_t steps_uncounted = 0;  ///< that the training's budget held for, and nobody counted
  std::int64_t most_in_step = 0;     ///< as the budget counts, budgeted steps only
  std::int64_t most_in_step_at = 0;  ///< the run step of that; 0: none

  std::vector<SyncSite> sites;  ///< most time first

  /// Takes away what `before`, an earlier summary of the same ledger, had counted already. The longest
  /// syncs of places that both have stay: they cannot be told apart.
  void take_away(const SyncSummary& before);

  [[nodiscard]] bool is_counting() const noexcept {
    return source == SyncSource::cupti || source == SyncSource::shared;
  }
  /// Now or once before: only then is a total of 0 one that was counted.
  [[nodiscard]] bool has_counted() const noexcept {
    return is_counting() || covered_seconds > 0 || !sites.empty();
  }
};

}  // namespace gradvane::record
