#pragma once
// The ledger over CUPTI's callbacks: marks steps, and tells what was counted in them.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "collectors/sync_ledger/call_intake.hpp"
#include "collectors/sync_ledger/cupti/subscription_keeper.hpp"
#include "collectors/sync_ledger/sync_harvest.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::collectors {

class CuptiLedger final : public SyncLedger {
 public:
  using World = CuptiSubscription::World;
  static World real_world() noexcept { return CuptiSubscription::real_world(); }

  explicit CuptiLedger(const World& world = real_world())
      : world_(world), intake_(world.now), keeper_(world, intake_) {}

  void join(const LedgerWish& wish) noexcept override;
  void leave() noexcept override;
  void driver_comes() noexcept override;
  SyncMark end_step() noexcept override;
  void set_phase(std::uint8_t phase) noexcept override { intake_.set_phase(phase); }
  void pass_over(const std::string& directory) noexcept override;
  void outside_steps(int delta) noexcept override { intake_.outside_steps(delta); }
  void profiler_begins(const char* name) noexcept override;
  void profiler_ended() noexcept override;
  void end() noexcept override;
  void own(int delta) noexcept override;
  const char* set_scope(const char* name) noexcept override;
  void look(bool may_subscribe) noexcept override;
  void collect() noexcept override;
  bool step(const SyncMark& begin, const SyncMark& end, record::StepSyncs& syncs) override;
  std::vector<record::StepSyncSite> sites_of_step(const SyncMark& begin, const SyncMark& end,
                                                  record::SyncOrigin origin) override;
  record::SyncSummary summary() override;

  /// In the child of a fork: nothing here is alive any more.
  void in_forked_child() noexcept;

 private:
  World world_;
  CallIntake intake_;
  SubscriptionKeeper keeper_;
  std::mutex set_up_;  ///< two may join at once

  std::atomic<std::int64_t> steps_{0};
  std::atomic<std::int64_t> whole_steps_{0};  ///< counted from their first moment to their last
  std::atomic<std::uint64_t> last_generation_{0};  ///< at the end of the step before
  std::atomic<bool> is_dead_{false};  ///< in a forked child, where locks may be held for ever

  std::mutex harvest_mutex_;  ///< guards what follows
  SyncHarvest harvest_{intake_.tables(), intake_.places()};
};

}  // namespace gradvane::collectors
