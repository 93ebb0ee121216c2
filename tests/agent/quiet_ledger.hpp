#pragma once
// A ledger of host syncs that counts nothing: a test overrides what it looks at.
#include <cstdint>
#include <string>
#include <vector>

#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::test {

class QuietLedger : public collectors::SyncLedger {
 public:
  void join(const collectors::LedgerWish& /*wish*/) noexcept override {}
  void leave() noexcept override {}
  void driver_comes() noexcept override {}
  collectors::SyncMark end_step() noexcept override { return {}; }
  void set_phase(std::uint8_t /*phase*/) noexcept override {}
  void pass_over(const std::string& /*directory*/) noexcept override {}
  void outside_steps(int) noexcept override {}
  void end() noexcept override {}
  void profiler_begins(const char*) noexcept override {}
  void profiler_ended() noexcept override {}
  void own(int /*delta*/) noexcept override {}
  const char* set_scope(const char* /*name*/) noexcept override { return nullptr; }
  void look(bool /*may_subscribe*/) noexcept override {}
  void collect() noexcept override {}
  bool step(const collectors::SyncMark& /*begin*/, const collectors::SyncMark& /*end*/,
            record::StepSyncs& /*syncs*/) override {
    return false;
  }
  std::vector<record::StepSyncSite> sites_of_step(const collectors::SyncMark& /*begin*/,
                                                  const collectors::SyncMark& /*end*/,
                                                  record::SyncOrigin /*origin*/) override {
    return {};
  }
  record::SyncSummary summary() override { return {}; }

 protected:
  ~QuietLedger() = default;
};

}  // namespace gradvane::test
