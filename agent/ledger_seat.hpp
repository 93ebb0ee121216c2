#pragma once
// A run's place at the ledger of the process, which it takes while it lasts.
#include "agent/include/gradvane/agent.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::agent {

class LedgerSeat {
 public:
  /// Takes it, as the options ask. Throws std::runtime_error where they ask for more than can be had.
  explicit LedgerSeat(const Options& options);
  ~LedgerSeat() { leave(); }
  LedgerSeat(const LedgerSeat&) = delete;  // one run, one seat
  LedgerSeat& operator=(const LedgerSeat&) = delete;

  void leave() noexcept;
  /// More than 0 in all, of the whole process: what the training's threads do now belongs to no step. What is
  /// left of it goes when this run leaves.
  void outside_steps(int delta) noexcept;

  /// Null: host syncs are not counted.
  [[nodiscard]] collectors::SyncLedger* ledger() const noexcept { return ledger_; }

 private:
  collectors::SyncLedger* ledger_ = nullptr;
  int outside_ = 0;
};

}  // namespace gradvane::agent
