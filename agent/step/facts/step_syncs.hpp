#pragma once
// The host syncs of a step, as the ledger of the process counts them.
#include <cstdint>
#include <optional>

#include "collectors/steps/step_facts.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::agent {

/// Reports steps and phases to the ledger. Does nothing without one. Training thread only.
class StepSyncs {
 public:
  /// Counts in `ledger` from now on. Null: host syncs are no longer counted.
  void count_in(collectors::SyncLedger* ledger) noexcept;
  [[nodiscard]] collectors::SyncLedger* ledger() const noexcept { return ledger_; }

  /// Calls from now on belong to this phase (an index, or kNoPhase). Returns the phase before.
  int enter_phase(int phase) noexcept;
  /// Gradvane itself has `count` host syncs in the step in progress, since the user requested them.
  void excuse(std::int32_t count) noexcept { excused_ += count; }
  /// Ends the step. Host syncs since the end of the step before belong to it.
  /// @param waited  devices that immediate mode or the governor waited for
  void end_step(collectors::StepFacts& facts, std::int32_t waited) noexcept;

 private:
  collectors::SyncLedger* ledger_ = nullptr;
  std::optional<collectors::SyncMark> last_mark_;
  int phase_ = static_cast<int>(record::Phase::other);
  std::int32_t excused_ = 0;
};

}  // namespace gradvane::agent
