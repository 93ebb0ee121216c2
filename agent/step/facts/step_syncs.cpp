#include "agent/step/facts/step_syncs.hpp"

#include <utility>

namespace gradvane::agent {

void StepSyncs::count_in(collectors::SyncLedger* ledger) noexcept {
  if (ledger == nullptr && ledger_ != nullptr) ledger_->set_phase(collectors::kNoPhase);
  ledger_ = ledger;
  if (ledger_ != nullptr) ledger_->set_phase(static_cast<std::uint8_t>(phase_));
}

int StepSyncs::enter_phase(int phase) noexcept {
  if (ledger_ != nullptr) ledger_->set_phase(static_cast<std::uint8_t>(phase));
  return std::exchange(phase_, phase);
}

void StepSyncs::end_step(collectors::StepFacts& facts, std::int32_t waited) noexcept {
  if (ledger_ == nullptr) return;
  const collectors::SyncMark now = ledger_->end_step();
  facts.syncs_after = last_mark_.value_or(collectors::SyncMark{});
  facts.syncs_until = now;
  facts.own_sync_budget = std::exchange(excused_, 0) + waited;
  last_mark_ = now;
}

}  // namespace gradvane::agent
