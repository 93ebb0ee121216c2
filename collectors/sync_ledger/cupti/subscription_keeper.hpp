#pragma once
// When CUPTI's subscription is asked for, yielded to other tools, lost, and asked for again; and for how long
// it was held.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "collectors/sync_ledger/cupti/cupti_subscription.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::collectors {

/// Holds it while there are users, unless a profiler was given it. Any thread. The meaning of what is named
/// as in SyncLedger is the same.
class SubscriptionKeeper {
 public:
  SubscriptionKeeper(const CuptiSubscription::World& world, CallIntake& intake)
      : world_(world), intake_(intake), subscription_(world, intake) {}

  void join(const LedgerWish& wish) noexcept;
  void leave() noexcept;
  void driver_comes() noexcept;
  void profiler_begins(const char* name) noexcept;
  void profiler_ended() noexcept;
  void look(bool may_subscribe) noexcept;
  void end() noexcept;
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_.load(); }
  /// Of a step, before its end is marked: notes a subscription that has died. Returns the generation of one
  /// that is alive, else 0.
  std::uint64_t check() noexcept;
  /// Subscribes if that is for the training thread to do, which calls it.
  void subscribe_if_due() noexcept;
  /// Source, reason, seconds and gaps.
  void describe(record::SyncSummary& summary);
  /// Callbacks and users find nothing here any more; takes no lock.
  void in_forked_child() noexcept;

 private:
  // With control_ held.
  void subscribe() noexcept;
  void unsubscribe() noexcept { subscription_.give_back(); }
  void stop(record::SyncReason why, std::string_view detail) noexcept;
  void set_counting() noexcept;
  void set_state(record::SyncSource source, record::SyncReason reason,
                 std::string_view detail) noexcept;
  void pass_time() noexcept;
  void adopt(const LedgerWish& wish) noexcept;
  void follow_loss() noexcept;
  [[nodiscard]] bool lacks_sign() const noexcept;
  [[nodiscard]] bool yields() const noexcept;
  [[nodiscard]] bool shares() const noexcept;

  CuptiSubscription::World world_;
  CallIntake& intake_;
  CuptiSubscription subscription_;

  std::atomic<bool> has_ended_{false};  ///< end() was called
  std::atomic<bool> is_subscribing_{false};
  std::atomic<bool> is_due_{false};  ///< the training thread is to subscribe
  /// When CUPTI must have shown that it calls back. Monotonic nanoseconds.
  std::atomic<std::int64_t> sign_until_{0};

  std::mutex control_;  ///< guards what follows, and subscription_
  const cupti::Functions* functions_ = nullptr;
  LedgerWish wish_;
  int users_ = 0;
  bool has_yielded_ = false;
  int profilers_ = 0;                    ///< that have begun and not ended
  const char* last_profiler_ = nullptr;  ///< that was yielded to
  bool is_lost_ = false;                 ///< for good
  record::SyncSource source_ = record::SyncSource::off;
  record::SyncReason reason_ = record::SyncReason::switched_off;
  std::string detail_;
  std::int64_t gaps_ = 0;
  std::int64_t covered_ = 0;  ///< nanoseconds
  std::int64_t blind_ = 0;
  std::int64_t counted_from_ = 0;
  std::int64_t next_try_ = 0;
};

}  // namespace gradvane::collectors
