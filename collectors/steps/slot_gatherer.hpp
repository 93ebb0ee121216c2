#pragma once
// Brings together what a step's facts only point to: its slots in the host's ring and in those of the
// devices.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "collectors/steps/device_feed.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/steps/step_builder.hpp"
#include "collectors/steps/step_facts.hpp"
#include "kernels/running_totals.hpp"

namespace gradvane::collectors {

/// The worker has one; immediate mode and policies have their own, on the training thread.
class SlotGatherer {
 public:
  explicit SlotGatherer(Handoff& handoff) : handoff_(handoff) {}

  /// Whether all of the step's reads have arrived, or never will: those on the host have when it is handed
  /// over. Steps are asked for in order, and again until they are ready.
  [[nodiscard]] bool ready(const StepFacts& facts);
  /// Whether something is not finite in what has arrived of the step that ready() was asked for last.
  [[nodiscard]] bool found_nonfinite() const noexcept;
  /// The slots of the step, as far as they could be had; after ready(), or without where a device has
  /// stopped answering. Valid until the next call of either.
  [[nodiscard]] const StepSlots& take(const StepFacts& facts);

  /// A step that went into a graph: it is not taken now. Each replay of the graph takes it once.
  void note_captured(const StepFacts& facts);
  /// What has arrived: only what ready() came past, which lies before that step; or all there is.
  enum class Look : std::uint8_t { behind, further };
  /// The next replay that has arrived whole, to be taken with take_replay().
  [[nodiscard]] std::optional<StepFacts> next_replay(Look look);
  /// Valid until the next next_replay().
  [[nodiscard]] const StepSlots& take_replay();

  /// Reads of the steps taken since the last call that were overwritten first, or whose plan was gone: what
  /// they found of single parameters is lost.
  [[nodiscard]] std::int64_t take_lost_reads() noexcept;

  /// Non-finite elements of all rings together, up to the step or replay taken last.
  [[nodiscard]] kernels::RunningTotals totals() const;

 private:
  using Stats = std::vector<kernels::TensorStats>;
  /// One kind of slot of a step: the entries of all its devices in one list.
  struct Part {
    Stats stats;
    bool found = false;
  };
  struct Step {
    bool taken = false;         ///< it is over
    std::uint64_t arrived = 0;  ///< which reads are in parts, or lost; by their place in the list
    std::array<Part, kSlotRoles> parts;
    StepSlots slots;
    std::map<std::uint64_t, kernels::SlotHeader> newest;  ///< slot of each source

    void begin();
  };

  DeviceFeed* feed(std::uint64_t source);
  const StepSlots& finish(Step& step);
  [[nodiscard]] DeviceFeed::Found find(const SlotRead& read);
  void add(const SlotRead& read, const kernels::SlotHeader& header, const Stats& stats, Step& step);

  Handoff& handoff_;
  std::vector<StepFacts> captured_;
  std::map<std::uint64_t, std::unique_ptr<DeviceFeed>> feeds_;  ///< of devices, by source
  std::map<std::uint64_t, kernels::RunningTotals> totals_;      ///< by source
  Step step_;
  Step replay_;

  std::int64_t lost_reads_ = 0;
  Stats host_stats_;
  kernels::SlotHeader host_header_;
};

}  // namespace gradvane::collectors
