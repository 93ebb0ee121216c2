// CuptiLedger's part that gets the subscription, shares it, loses it and gets it back.
#include <cstdio>
#include <cstdlib>

#include "collectors/sync_ledger/cupti_ledger.hpp"
#include "collectors/sync_ledger/cupti_library.hpp"
#include "collectors/sync_ledger/native_stack.hpp"
#include "collectors/sync_ledger/within_a_second.hpp"

namespace gradvane::collectors {
namespace {

using record::SyncReason;
using record::SyncSource;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kTryAgain = 60 * kSecond;  ///< where another tool has it
constexpr const char* kOurName = "Gradvane";

std::string word_of(const cupti::Functions& functions, int result) {
  const char* text = nullptr;
  if (functions.get_result_string(result, &text) == cupti::kSuccess && text != nullptr)
    return std::string(text) + " (" + std::to_string(result) + ")";
  return "CUPTI error " + std::to_string(result);
}

}  // namespace

bool profiler_is_told_not_to_ask() noexcept { return std::getenv("KINETO_USE_DAEMON") != nullptr; }

void CuptiLedger::join(const LedgerWish& wish) noexcept try {
  if (is_dead_) return;
  const std::lock_guard lock(control_);
  const bool is_first = users_++ == 0;
  start_epoch_.store(epoch_.load());
  const std::int64_t now = world_.now();
  if (is_first) {
    pass_time();
    counted_from_ = now;
    wish_ = wish;
    counter_.set_threshold(wish.threshold);
    set_state(SyncSource::none, SyncReason::no_cuda, "");
    next_try_ = now;
  } else {
    adopt(wish);
  }
  (void)python_.look();
  NativeStack::look();
  // What a compiler writes there runs for a user's lines.
  if (const char* cache = std::getenv("TORCHINDUCTOR_CACHE_DIR")) finder_.pass_over(cache);
  if (subscriber_ == nullptr) subscribe();
} catch (...) {  // no memory: there is no ledger
}

/// Of one who joins after others: who joined by default gives way.
void CuptiLedger::adopt(const LedgerWish& wish) noexcept {
  if (wish_.is_default && !wish.is_default) {
    wish_.is_default = false;
    wish_.profiler = wish.profiler;
    counter_.set_threshold(wish.threshold);
  }
  wish_.at_once |= wish.at_once;
  if (subscriber_ != nullptr) set_counting();
}

void CuptiLedger::leave() noexcept {
  if (is_dead_) return;
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

void CuptiLedger::driver_comes() noexcept {
  if (is_dead_) return;
  // Whoever subscribes at this moment may wait for this very thread to set the driver up.
  if (is_subscribing_.load() || !control_.try_lock()) return is_due_.store(true);
  const std::lock_guard lock(control_, std::adopt_lock);
  wish_.at_once = true;
  if (users_ > 0 && subscriber_ == nullptr) subscribe();
}

/// An older CUPTI cannot share.
bool CuptiLedger::yields() const noexcept {
  return (wish_.profiler == ProfilerRule::yield ||
          (wish_.profiler == ProfilerRule::share && !shares())) &&
         !profiler_is_told_not_to_ask();
}

void CuptiLedger::profiler_begins(const char* name) noexcept try {
  if (is_dead_) return;
  const std::lock_guard lock(control_);
  if (users_ == 0) return;
  ++profilers_;
  if (!yields() || has_yielded_) return;
  has_yielded_ = true;
  last_profiler_ = name;
  const std::string whom = std::string("to ") + name;
  if (subscriber_ != nullptr)
    stop(SyncReason::yielded, whom);
  else
    set_state(SyncSource::none, SyncReason::yielded, whom);
} catch (...) {  // no memory for the words: the profiler finds what there is
}

void CuptiLedger::profiler_ended() noexcept {
  if (is_dead_) return;
  const std::lock_guard lock(control_);
  if (profilers_ > 0) --profilers_;
  if (!has_yielded_ || profilers_ > 0) return;
  has_yielded_ = false;
  if (users_ > 0 && subscriber_ == nullptr) subscribe();
}

bool CuptiLedger::is_subscription_alive() noexcept {
  return !has_failed_.load() && (!has_sign_.load() || still_calls_back());
}

void CuptiLedger::follow_loss() noexcept {
  if (subscriber_ == nullptr || is_subscription_alive()) return;
  stop(SyncReason::lost, has_failed_.load() ? "it met an error" : "perhaps ended by another tool");
}

void CuptiLedger::look(bool may_subscribe) noexcept {
  if (is_dead_) return;
  const std::lock_guard lock(control_);
  if (users_ == 0) return;
  pass_time();
  (void)python_.look();
  if (subscriber_ != nullptr) {
    if (may_subscribe || has_failed_.load()) follow_loss();  // else end_step() does
    return;
  }
  if (is_lost_ || has_yielded_ || world_.now() < next_try_) return;
  if (!wish_.at_once && !world_.has_driver()) return;
  if (may_subscribe)
    subscribe();
  else
    is_due_.store(true, std::memory_order_relaxed);
}

void CuptiLedger::end() noexcept {
  if (is_dead_) return;
  has_ended_.store(true);
  python_.end();
  // A thread may be inside CUPTI with the lock, and the driver may hang: the process ends all the same.
  if (!within_a_second([this] { return control_.try_lock(); })) return is_open_.store(false);
  const std::lock_guard lock(control_, std::adopt_lock);
  pass_time();
  counted_from_ = 0;
  is_due_.store(false);
  unsubscribe();
}

void CuptiLedger::subscribe() noexcept try {
  if (has_yielded_ || has_ended_) return;
  if (is_lost_) return set_state(SyncSource::none, SyncReason::lost, "");
  pass_time();
  next_try_ = world_.now() + kTryAgain;
  if (!wish_.at_once && !world_.has_driver()) {
    next_try_ = world_.now();
    return set_state(SyncSource::none, SyncReason::no_cuda, "");
  }
  std::string why;
  functions_ = world_.load(wish_.library, why);
  if (functions_ == nullptr) return set_state(SyncSource::none, SyncReason::no_cupti, why);
  world_.loaded();
  if (!make_room())
    return set_state(SyncSource::none, SyncReason::refused, "no memory for the tables");
  std::array<char, cupti::kOldNameBytes + 1> owner{};
  is_subscribing_.store(true);
  const int result = ask(*functions_, owner.data());
  is_subscribing_.store(false);
  if (result == cupti::kMultipleSubscribers) {
    const std::string name(owner.data());
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
  has_failed_.store(false);
  has_sign_.store(false);
  is_open_.store(true);
  if (!enable_calls(*functions_)) return stop(SyncReason::refused, "no callback can be enabled");
  generation_.fetch_add(1);  // from here on a step may be counted from end to end
  set_counting();
} catch (...) {  // no memory for a word: nothing is counted then
  unsubscribe();
}

bool CuptiLedger::make_room() noexcept {
  if (!has_room_) has_room_ = tables_.open() && places_.open();
  return has_room_;
}

int CuptiLedger::ask(const cupti::Functions& functions, char* owner) noexcept {
  subscriber_ = nullptr;
  int result = cupti::kUnknownError;
  if (functions.subscribe_v2 != nullptr) {
    const bool shared = shares();
    cupti::SubscriberParams params;
    params.struct_size = shared ? sizeof params : cupti::kSingleParamsSize;
    params.name = kOurName;
    params.old_name = owner;
    params.old_name_size = cupti::kOldNameBytes;
    params.allow_multiple = shared ? 1 : 0;
    result = functions.subscribe_v2(&subscriber_, &on_callback, this, &params);
  } else {
    result = functions.subscribe(&subscriber_, &on_callback, this);
  }
  if (result != cupti::kSuccess) subscriber_ = nullptr;
  return result;
}

/// False where none could be. A call that this CUPTI knows by another name, or not at all, is left out.
bool CuptiLedger::enable_calls(const cupti::Functions& functions) noexcept {
  const auto enable = [&](cupti::Domain domain, std::uint32_t id, const char* expected) {
    const char* name = nullptr;
    return functions.get_callback_name(domain, id, &name) == cupti::kSuccess && name != nullptr &&
           std::string_view(name) == expected &&
           functions.enable_callback(1, subscriber_, domain, id) == cupti::kSuccess;
  };
  enabled_ = 0;
  for (const CudaCall& call : cuda_calls())
    enabled_ += enable(call.domain, call.id, call.name) ? 1 : 0;
  (void)functions.enable_callback(1, subscriber_, cupti::Domain::state, cupti::kStateFatalError);
  // Where it gives no sign now, none can be missed later.
  has_sign_.store(
      enable(cupti::Domain::driver, cupti::kDriverGetVersion, cupti::kDriverGetVersionName) &&
      still_calls_back());
  return enabled_ > 0;
}

/// A thread may still be in the callback when this returns: nothing that it uses is ever freed.
void CuptiLedger::unsubscribe() noexcept {
  // The handle of a CUPTI that has been ended leads anywhere, so it is given back only to a living one.
  const bool is_ours = subscriber_ != nullptr && is_subscription_alive();
  is_open_.store(false);
  if (generation_.load() % 2 == 1) generation_.fetch_add(1);
  if (is_ours) (void)functions_->unsubscribe(subscriber_);
  subscriber_ = nullptr;
}

void CuptiLedger::stop(SyncReason why, std::string_view detail) noexcept {
  pass_time();
  if (why == SyncReason::lost) {
    subscriber_ = nullptr;  // it died with the rest
    is_lost_ = true;        // whether CUPTI may be begun again after that, no GPU has shown
  }
  unsubscribe();
  ++gaps_;
  set_state(SyncSource::none, why, detail);
}

void CuptiLedger::set_counting() noexcept {
  std::array<char, 128> detail{};
  const int all = static_cast<int>(cuda_calls().size());
  if (enabled_ < all)
    std::snprintf(detail.data(), detail.size(), "this CUPTI knows %d of %d calls", enabled_, all);
  else if (!has_sign_.load())
    std::snprintf(detail.data(), detail.size(), "whether another tool ends CUPTI cannot be seen");
  const bool is_gated = wish_.profiler == ProfilerRule::keep && profiler_is_told_not_to_ask();
  set_state(SyncSource::cupti, is_gated ? SyncReason::gated : SyncReason::counting, detail.data());
}

void CuptiLedger::set_state(SyncSource source, SyncReason reason,
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
void CuptiLedger::pass_time() noexcept {
  const std::int64_t now = world_.now();
  if (has_ended_ && counted_from_ == 0) return;
  if (users_ > 0 && counted_from_ != 0)
    (source_ == SyncSource::cupti ? covered_ : blind_) += now - counted_from_;
  counted_from_ = now;
}

/// Not where a CUPTI is too old to, or not known yet.
bool CuptiLedger::shares() const noexcept {
  if (wish_.profiler != ProfilerRule::share || functions_ == nullptr) return false;
  std::uint32_t version = 0;
  (void)functions_->get_version(&version);
  return functions_->subscribe_v2 != nullptr && version >= cupti::kFirstMultipleVersion;
}

}  // namespace gradvane::collectors
