#pragma once
// Takes steps from the hand-off, in order, each once its results have arrived and it has the values that are logged behind it.
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "collectors/steps/handoff.hpp"
#include "collectors/steps/slot_gatherer.hpp"
#include "collectors/steps/step_builder.hpp"
#include "collectors/steps/step_facts.hpp"
#include "kernels/running_totals.hpp"

namespace gradvane::agent {

/// Threading: the worker's.
class StepIntake {
 public:
  /// From when its results have arrived, a step may stay open for this long, unless something in it is not finite. A loop
  /// whose next step shows itself closes it far sooner.
  static constexpr std::chrono::milliseconds kOpenFor{250};

  explicit StepIntake(collectors::Handoff& handoff) : handoff_(handoff), gatherer_(handoff) {}

  struct Step {
    collectors::StepFacts facts;
    collectors::StepSlots slots;  ///< valid until the next call of the intake
    std::uint64_t lost = 0;       ///< steps overwritten before it
    std::int64_t lost_reads = 0;  ///< of it, and of those before it that were not returned
    kernels::RunningTotals totals;
    /// Steps taken from the hand-off, this one included; 0: a replay, which is not counted there.
    std::uint64_t taken = 0;
  };

  /// Takes the facts that the training thread has published since.
  void collect();
  /// The next step whose slots have arrived; with `all`, the next one with what there is. Replays
  /// of a graph come before the step that they precede.
  [[nodiscard]] std::optional<Step> next(bool all);
  /// The next replay of a graph that no hook saw. To be called while nothing is pending.
  [[nodiscard]] std::optional<Step> next_replay();
  /// No step waits for its devices.
  [[nodiscard]] bool empty() const noexcept { return pending_.empty(); }

 private:
  /// A step whose devices are still at it.
  struct Pending {
    collectors::StepFacts facts;
    std::uint64_t lost = 0;
    std::uint64_t taken = 0;  ///< its sequence number too
    std::optional<std::chrono::steady_clock::time_point> arrived = {};
    bool is_urgent = false;  ///< something in it is not finite
    bool is_whole = false;   ///< has what was logged behind it
  };

  [[nodiscard]] bool make_whole(Pending& step, bool all);
  [[nodiscard]] std::optional<Step> replay(collectors::SlotGatherer::Look look);
  [[nodiscard]] Step gathered(const Pending& pending, const collectors::StepSlots& slots);

  collectors::Handoff& handoff_;
  collectors::SlotGatherer gatherer_;
  std::deque<Pending> pending_;
  std::map<std::int32_t, std::int64_t> last_steps_;  ///< by optimizer
};

}  // namespace gradvane::agent
