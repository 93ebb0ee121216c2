#pragma once
// The ledger over CUPTI's callbacks, and its place beside the other tools of a process.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "collectors/sync_ledger/call_counter.hpp"
#include "collectors/sync_ledger/cupti_abi.hpp"
#include "collectors/sync_ledger/place_finder.hpp"
#include "collectors/sync_ledger/place_store.hpp"
#include "collectors/sync_ledger/python_stack.hpp"
#include "collectors/sync_ledger/sync_harvest.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"
#include "collectors/sync_ledger/table_pool.hpp"

namespace gradvane::collectors {

/// What a thread keeps for the ledger it is counted by.
struct LedgerThread {
  ThreadTable* table = nullptr;
  const void* owner = nullptr;  ///< the ledger that the table is of
  const char* scope = nullptr;
  std::int32_t own = 0;
  std::uint32_t without = 0;  ///< callbacks that found no table
  std::uint32_t signs = 0;    ///< of life, that CUPTI gave on this thread
  bool ends_steps = false;
};

class CuptiLedger final : public SyncLedger {
 public:
  /// The world outside, so that tests can bring another.
  struct World {
    const cupti::Functions* (*load)(const std::string& path, std::string& why);
    bool (*has_driver)();   ///< in this process
    void (*call_driver)();  ///< cuDriverGetVersion, where there is a driver
    std::int64_t (*now)();  ///< monotonic, nanoseconds
    void (*loaded)();       ///< a libcupti has been loaded, perhaps not for the first time
  };
  static World real_world() noexcept;

  explicit CuptiLedger(World world = real_world());
  CuptiLedger(const CuptiLedger&) = delete;  // CUPTI holds its address
  CuptiLedger& operator=(const CuptiLedger&) = delete;

  void join(const LedgerWish& wish) noexcept override;
  void leave() noexcept override;
  void driver_comes() noexcept override;
  SyncMark end_step() noexcept override;
  void set_phase(std::uint8_t phase) noexcept override { phase_.store(phase); }
  void pass_over(const std::string& directory) noexcept override { finder_.pass_over(directory); }
  void outside_steps(int delta) noexcept override { outside_.fetch_add(delta); }
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
  [[nodiscard]] bool make_room() noexcept;
  static void on_callback(void* user, cupti::Domain domain, std::uint32_t id, const void* data);
  void take(cupti::Domain domain, std::uint32_t id, const cupti::CallbackData& data) noexcept;
  ThreadTable* table(const CudaCall& call, cupti::Site site) noexcept;
  [[nodiscard]] std::int64_t polls() noexcept;
  [[nodiscard]] record::SyncPart part_of(std::uint64_t epoch) const noexcept;
  [[nodiscard]] bool still_calls_back() noexcept;

  // With control_ held.
  void subscribe() noexcept;
  int ask(const cupti::Functions& functions, char* owner) noexcept;
  bool enable_calls(const cupti::Functions& functions) noexcept;
  void unsubscribe() noexcept;
  void stop(record::SyncReason why, std::string_view detail) noexcept;
  void set_counting() noexcept;
  void set_state(record::SyncSource source, record::SyncReason reason,
                 std::string_view detail) noexcept;
  void pass_time() noexcept;
  void adopt(const LedgerWish& wish) noexcept;
  [[nodiscard]] bool is_subscription_alive() noexcept;
  void follow_loss() noexcept;
  [[nodiscard]] bool yields() const noexcept;
  [[nodiscard]] bool shares() const noexcept;

  World world_;
  TablePool tables_;
  PlaceStore places_;
  PythonStack python_;
  PlaceFinder finder_{places_, python_};
  CallCounter counter_{finder_};
  bool has_room_ = false;  ///< tables and places are mapped: at the first subscription

  // Read in callbacks.
  std::atomic<bool> is_open_{false};
  std::atomic<std::uint64_t> generation_{0};  ///< odd while subscribed
  std::atomic<std::uint64_t> epoch_{kFirstEpoch};
  std::atomic<std::uint64_t> start_epoch_{kFirstEpoch};  ///< in progress when somebody joined last
  std::atomic<std::uint8_t> phase_{kNoPhase};
  std::atomic<int> outside_{0};          ///< of steps, if more than 0
  std::atomic<bool> has_failed_{false};  ///< CUPTI announced its own end
  std::atomic<bool> has_sign_{false};    ///< still_calls_back() can tell
  std::atomic<bool> has_ended_{false};   ///< end() was called
  std::atomic<bool> is_subscribing_{false};
  std::atomic<bool> is_due_{false};  ///< the training thread is to subscribe
  std::atomic<std::int64_t> steps_{0};
  std::atomic<std::int64_t> whole_steps_{0};  ///< counted from their first moment to their last
  std::atomic<std::uint64_t> last_generation_{0};  ///< at the end of the step before
  std::atomic<bool> is_dead_{false};  ///< in a forked child, where locks may be held for ever

  std::mutex control_;  ///< guards what follows
  const cupti::Functions* functions_ = nullptr;
  cupti::Subscriber subscriber_ = nullptr;
  LedgerWish wish_;
  int users_ = 0;
  bool has_yielded_ = false;
  int profilers_ = 0;                    ///< that have begun and not ended
  const char* last_profiler_ = nullptr;  ///< that was yielded to
  bool is_lost_ = false;                 ///< for good
  int enabled_ = 0;                      ///< calls, by the last subscription
  record::SyncSource source_ = record::SyncSource::off;
  record::SyncReason reason_ = record::SyncReason::switched_off;
  std::string detail_;
  std::int64_t gaps_ = 0;
  std::int64_t covered_ = 0;  ///< nanoseconds
  std::int64_t blind_ = 0;
  std::int64_t counted_from_ = 0;
  std::int64_t next_try_ = 0;

  std::mutex harvest_mutex_;  ///< guards what follows
  SyncHarvest harvest_{tables_, places_};
};

}  // namespace gradvane::collectors
