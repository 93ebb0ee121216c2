#pragma once
// Brings together what a step's facts only point to: its slots in the host's ring and in those of the
// devices.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/device_feed.hpp"
#include "agent/handoff.hpp"
#include "collectors/step_builder.hpp"
#include "collectors/step_facts.hpp"
#include "kernels/running_totals.hpp"

namespace gradvane::agent {

/// The worker's.
class SlotGatherer {
 public:
  explicit SlotGatherer(Handoff& handoff) : handoff_(handoff) {}

  /// Whether everything that the step's devices owe has arrived, or never will. Steps are asked for in
  /// order, and again until they are ready.
  [[nodiscard]] bool ready(const collectors::StepFacts& facts);

  /// A step that went into a graph: it is not taken now. Each replay of the graph takes it once.
  void note_captured(const collectors::StepFacts& facts);
  /// The next replay that has arrived whole: as facts, ready to be taken. Not between ready() and take().
  [[nodiscard]] std::optional<collectors::StepFacts> next_replay();

  /// The slots of the step, as far as they could be had; after ready(), or without where a device has
  /// stopped answering. Valid until the next call of either.
  [[nodiscard]] const collectors::StepSlots& take(const collectors::StepFacts& facts);

  /// Non-finite elements of all rings together, up to the step taken last.
  [[nodiscard]] const kernels::RunningTotals& totals() const noexcept { return totals_; }

 private:
  using Stats = std::vector<kernels::TensorStats>;
  enum Role : std::uint8_t { kGradients, kWeights, kLoss, kRoles };
  /// One kind of slot of the step in hand: the entries of all its devices in one list.
  struct Part {
    Stats stats;
    bool found = false;
  };

  template <typename Visit>
  void for_each_device_read(const collectors::StepFacts& facts, Visit visit);
  DeviceFeed* feed(std::uint64_t source);
  void take_from_host(std::uint64_t sequence, Part& part);
  void add(const Stats& stats, std::uint64_t plan_id, Part& part);

  void begin();

  Handoff& handoff_;
  std::vector<collectors::StepFacts> captured_;
  std::map<std::uint64_t, std::unique_ptr<DeviceFeed>> feeds_;  ///< by source
  std::map<std::uint64_t, kernels::RunningTotals> arrived_totals_;

  // Of the step in hand.
  bool taken_ = false;  ///< it is over
  std::uint32_t arrived_ =
      0;  ///< which of its device reads are in parts_, or lost; by order of visit
  Part parts_[kRoles];
  std::uint64_t newest_host_ = 0;
  Stats host_stats_;
  kernels::SlotHeader host_header_;
  kernels::RunningTotals host_totals_;
  kernels::RunningTotals totals_;
  collectors::StepSlots slots_;
};

}  // namespace gradvane::agent
