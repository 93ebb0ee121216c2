#pragma once
// Brings together what a step's facts only point to: its slots in the host's ring and in those of the
// devices.
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

/// The worker's.
class SlotGatherer {
 public:
  explicit SlotGatherer(Handoff& handoff) : handoff_(handoff) {}

  /// Whether everything that the step's devices owe has arrived, or never will. Steps are asked for in
  /// order, and again until they are ready.
  [[nodiscard]] bool ready(const StepFacts& facts);
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
  enum Role : std::uint8_t { gradients, weights, loss, user, roles };
  /// One kind of slot of a step: the entries of all its devices in one list.
  struct Part {
    Stats stats;
    bool found = false;
  };
  struct Step {
    bool taken = false;         ///< it is over
    std::uint32_t arrived = 0;  ///< which device reads are in parts, or lost; by order of visit
    Part parts[roles];
    StepSlots slots;
    std::map<std::uint64_t, kernels::RunningTotals> totals;  ///< by source

    void begin();
  };

  template <typename Visit>
  void for_each_device_read(const StepFacts& facts, Visit visit);
  DeviceFeed* feed(std::uint64_t source);
  const StepSlots& finish(Step& step);
  void take_from_host(std::uint64_t sequence, Role role);
  void add(const Stats& stats, std::uint64_t plan_id, Step& step, Role role);

  Handoff& handoff_;
  std::vector<StepFacts> captured_;
  std::map<std::uint64_t, std::unique_ptr<DeviceFeed>> feeds_;     ///< by source
  std::map<std::uint64_t, kernels::RunningTotals> device_totals_;  ///< by source
  Step step_;
  Step replay_;

  std::int64_t lost_reads_ = 0;
  std::uint64_t newest_host_ = 0;  ///< of the step in hand
  Stats host_stats_;
  kernels::SlotHeader host_header_;
  kernels::RunningTotals host_totals_;
};

}  // namespace gradvane::collectors
