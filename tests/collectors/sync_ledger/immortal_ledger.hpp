#pragma once
// Ledgers are never destroyed: CUPTI may be in one at any time. Tests keep theirs reachable.
#include <memory>
#include <vector>

#include "collectors/sync_ledger/cupti_ledger.hpp"

namespace gradvane::collectors {

inline CuptiLedger* immortal_ledger(const CuptiLedger::World& world) {
  static auto& ledgers = *new std::vector<std::unique_ptr<CuptiLedger>>;
  return ledgers.emplace_back(std::make_unique<CuptiLedger>(world)).get();
}

}  // namespace gradvane::collectors
