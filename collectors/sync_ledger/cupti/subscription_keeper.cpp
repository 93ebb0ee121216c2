#include "collectors/sync_ledger/cupti/subscription_keeper.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>

#include "collectors/sync_ledger/within_a_second.hpp"

namespace gradvane::collectors {
namespace {

using record::SyncReason;
using record::SyncSource;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kTryAgain = 60 * kSecond;   ///< where another tool has it
constexpr std::int64_t kFirstSign = 60 * kSecond;  ///< more than a driver's set-up takes

std::string word_of(const cupti::Functions& functions, int result) {
  const char* text = nullptr;
  if (functions.get_result_string(result, &text) == cupti::kSuccess && text != nullptr)
    return std::string(text) + " (" + std::to_string(result) + ")";
  return "CUPTI error " + std::to_string(result);
}

}  // namespace

bool profiler_is_told_not_to_ask() noexcept { return std::getenv("KINETO_USE_DAEMON") != nullptr; }

void SubscriptionKeeper::join(const LedgerWish& wish) noexcept try {
  const std::lock_guard lock(control_);
  if (users_++ == 0) {
    const std::int64_t now = world_.now();
    pass_time();
    counted_from_ = now;
    wish_ = wish;
    intake_.set_threshold(wish.threshold);
    set_state(SyncSource::none, SyncReason::no_cuda, "");
    next_try_ = now;
  } else {
    adopt(wish);
  }
  if (!subscription_.is_held()) subscribe();
} catch (...) {  // no memory: there is no ledger
}

/// Of one who joins after others: who joined by default gives way.
void SubscriptionKeeper::adopt(const LedgerWish& wish) noexcept {
  if (wish_.is_default && !wish.is_default) {
    wish_.is_default = false;
    wish_.profiler = wish.profiler;
    intake_.set_threshold(wish.threshold);
  }
  wish_.at_once |= wish.at_once;
  wish_.is_required |= wish.is_required;
  if (subscription_.is_held()) set_counting();
}

void SubscriptionKeeper::leave() noexcept {
  const std::lock_guard lock(control_);
  if (users_ == 0) return;
  if (--users_ > 0) return;
  pass_time();
  unsubscribe();
  is_due_.store(false);
  has_yielded_ = false;
  profilers_ = 0;
  set_state(SyncSource::off, SyncReason::switched_off, "");
}

void SubscriptionKeeper::driver_comes() noexcept {
  // Whoever subscribes at this moment may wait for this very thread to set the driver up.
  if (is_subscribing_.load() || !control_.try_lock()) return is_due_.store(true);
  const std::lock_guard lock(control_, std::adopt_lock);
  wish_.at_once = true;
  if (users_ > 0 && !subscription_.is_held()) subscribe();
}

/// An older CUPTI cannot share.
bool SubscriptionKeeper::yields() const noexcept {
  return (wish_.profiler == ProfilerRule::yield ||
          (wish_.profiler == ProfilerRule::share && !shares())) &&
         !profiler_is_told_not_to_ask();
}

void SubscriptionKeeper::profiler_begins(const char* name) noexcept try {
  const std::lock_guard lock(control_);
  if (users_ == 0) return;
  ++profilers_;
  if (!yields() || has_yielded_) return;
  has_yielded_ = true;
  last_profiler_ = name;
  const std::string whom = std::string("to ") + name;
  if (subscription_.is_held())
    stop(SyncReason::yielded, whom);
  else
    set_state(SyncSource::none, SyncReason::yielded, whom);
} catch (...) {  // no memory for the words: the profiler finds what there is
}

void SubscriptionKeeper::profiler_ended() noexcept {
  const std::lock_guard lock(control_);
  if (profilers_ > 0) --profilers_;
  if (!has_yielded_ || profilers_ > 0) return;
  has_yielded_ = false;
  if (users_ > 0 && !subscription_.is_held()) subscribe();
}

/// Of one that never called back, no one could see that it has died, and its handle could be a dead one later.
bool SubscriptionKeeper::lacks_sign() const noexcept {
  return !subscription_.has_sign() && world_.now() > sign_until_.load(std::memory_order_relaxed);
}

void SubscriptionKeeper::follow_loss() noexcept {
  if (!subscription_.is_held()) return;
  if (!subscription_.is_alive())
    return stop(SyncReason::lost,
                subscription_.has_failed() ? "it met an error" : "perhaps ended by another tool");
  if (!lacks_sign()) return;
  unsubscribe();
  stop(SyncReason::lost, "given up: its end by another tool could not be seen");
}

void SubscriptionKeeper::look(bool may_subscribe) noexcept {
  const std::lock_guard lock(control_);
  if (users_ == 0) return;
  pass_time();
  if (subscription_.is_held()) {
    if (may_subscribe || subscription_.has_failed()) follow_loss();  // else end_step() does
    return;
  }
  if (is_lost_ || has_yielded_ || world_.now() < next_try_) return;
  if (!wish_.at_once && !world_.has_driver()) return;
  if (may_subscribe)
    subscribe();
  else
    is_due_.store(true, std::memory_order_relaxed);
}

void SubscriptionKeeper::end() noexcept {
  has_ended_.store(true);
  // A thread may be inside CUPTI with the lock, and the driver may hang: the process ends all the same.
  if (!within_a_second([this] { return control_.try_lock(); })) return subscription_.close();
  const std::lock_guard lock(control_, std::adopt_lock);
  pass_time();
  counted_from_ = 0;
  is_due_.store(false);
  unsubscribe();
}

void SubscriptionKeeper::subscribe() noexcept try {
  if (has_yielded_ || has_ended_) return;
  if (is_lost_) return set_state(SyncSource::none, SyncReason::lost, "");
  pass_time();
  next_try_ = world_.now() + kTryAgain;
  if (!wish_.at_once && !world_.has_driver()) {
    next_try_ = world_.now();
    return set_state(SyncSource::none, SyncReason::no_cuda, "");
  }
  // The driver serves one libcupti in a process, and Proton brings its own: with ours in use before, it could not
  // start.
  if (functions_ == nullptr && !wish_.is_required && world_.has_proton())
    return set_state(SyncSource::none, SyncReason::proton, "");
  std::string why;
  functions_ = world_.load(wish_.library, why);
  if (functions_ == nullptr) return set_state(SyncSource::none, SyncReason::no_cupti, why);
  world_.loaded();
  if (!intake_.make_room())
    return set_state(SyncSource::none, SyncReason::refused, "no memory for the tables");
  is_subscribing_.store(true);
  const auto [result, holder] = subscription_.ask(*functions_, shares());
  is_subscribing_.store(false);
  if (result == cupti::kMultipleSubscribers) {
    const std::string name(holder.data());
    std::string whom = name.empty() ? "by another tool" : "by " + name;
    if (last_profiler_ != nullptr)
      whom += ", since " + std::string(last_profiler_) + " was given it";
    return set_state(SyncSource::none, SyncReason::taken, whom);
  }
  if (result != cupti::kSuccess) {
    const bool is_missing = result == cupti::kUnknownError && !world_.has_driver();
    return set_state(SyncSource::none, is_missing ? SyncReason::no_driver : SyncReason::refused,
                     word_of(*functions_, result));
  }
  sign_until_.store(world_.now() + kFirstSign, std::memory_order_relaxed);
  if (!subscription_.count_calls()) return stop(SyncReason::refused, "no callback can be enabled");
  set_counting();
} catch (...) {  // no memory for a word: nothing is counted then
  unsubscribe();
}

void SubscriptionKeeper::stop(SyncReason why, std::string_view detail) noexcept {
  pass_time();
  if (why == SyncReason::lost) {
    subscription_.forget();
    is_lost_ = true;  // whether CUPTI may be begun again after that, no GPU has shown
  }
  unsubscribe();
  ++gaps_;
  set_state(SyncSource::none, why, detail);
}

void SubscriptionKeeper::set_counting() noexcept {
  std::array<char, 128> detail{};
  const int all = static_cast<int>(cuda_calls().size());
  if (subscription_.enabled() < all)
    std::snprintf(detail.data(), detail.size(), "this CUPTI knows %d of %d calls",
                  subscription_.enabled(), all);
  else if (!subscription_.has_sign())
    std::snprintf(detail.data(), detail.size(),
                  "an end of CUPTI by another tool could not be seen yet");
  const bool is_gated = wish_.profiler == ProfilerRule::keep && profiler_is_told_not_to_ask();
  set_state(SyncSource::cupti, is_gated ? SyncReason::gated : SyncReason::counting, detail.data());
}

void SubscriptionKeeper::set_state(SyncSource source, SyncReason reason,
                                   std::string_view detail) noexcept {
  source_ = source;
  reason_ = reason;
  try {
    detail_ = detail;
  } catch (...) {  // no memory: the reason alone then
    detail_.clear();
  }
}

/// Books the time since the last look as counted or not.
void SubscriptionKeeper::pass_time() noexcept {
  const std::int64_t now = world_.now();
  if (has_ended_ && counted_from_ == 0) return;
  if (users_ > 0 && counted_from_ != 0)
    (source_ == SyncSource::cupti ? covered_ : blind_) += now - counted_from_;
  counted_from_ = now;
}

std::uint64_t SubscriptionKeeper::check() noexcept {
  if (subscription_.generation() % 2 == 1 && (!subscription_.is_alive() || lacks_sign())) {
    const std::lock_guard lock(control_);
    follow_loss();
  }
  const std::uint64_t generation = subscription_.generation();
  return generation % 2 == 1 ? generation : 0;
}

void SubscriptionKeeper::subscribe_if_due() noexcept {
  if (!is_due_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(control_);
  if (is_due_.exchange(false)) subscribe();
}

void SubscriptionKeeper::describe(record::SyncSummary& summary) {
  const std::lock_guard lock(control_);
  pass_time();
  if (subscription_.is_held()) set_counting();
  summary.source = source_;
  summary.reason = reason_;
  summary.detail = detail_;
  summary.covered_seconds = 1e-9 * static_cast<double>(covered_);
  summary.blind_seconds = 1e-9 * static_cast<double>(blind_);
  summary.gaps = gaps_;
}

void SubscriptionKeeper::in_forked_child() noexcept {
  subscription_.close();
  is_due_.store(false);
}

/// Not where a CUPTI is too old to, or not known yet.
bool SubscriptionKeeper::shares() const noexcept {
  if (wish_.profiler != ProfilerRule::share || functions_ == nullptr) return false;
  std::uint32_t version = 0;
  (void)functions_->get_version(&version);
  return functions_->subscribe_v2 != nullptr && version >= cupti::kFirstMultipleVersion;
}

}  // namespace gradvane::collectors
