// CuptiLedger's part that gets the subscription, shares it, loses it and gets it back.
#include <cstdlib>
#include <utility>

#include "collectors/sync_ledger/cupti_ledger.hpp"
#include "collectors/sync_ledger/cupti_library.hpp"
#include "collectors/sync_ledger/native_stack.hpp"

namespace gradvane::collectors {
namespace {

using record::SyncReason;
using record::SyncSource;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kTryAgain = 60 * kSecond;     ///< where another tool has it
constexpr std::int64_t kTryAgainSoon = 5 * kSecond;  ///< where it was lost
constexpr const char* kGate = "KINETO_USE_DAEMON";
constexpr const char* kOurName = "Gradvane";

/// The profiler has been told, by whomever, not to ask.
bool is_gated() { return std::getenv(kGate) != nullptr; }

// cudaDeviceSynchronize: of all calls that are looked at, the one that every CUPTI has.
constexpr std::uint32_t kCanary = 165;

std::string word_of(const cupti::Functions& functions, int result) {
  const char* text = nullptr;
  if (functions.get_result_string(result, &text) == cupti::kSuccess && text != nullptr)
    return std::string(text) + " (" + std::to_string(result) + ")";
  return "CUPTI error " + std::to_string(result);
}

}  // namespace

void CuptiLedger::join(const LedgerWish& wish) noexcept try {
  if (is_dead_) return;
  const std::lock_guard lock(control_);
  const bool is_first = users_++ == 0;
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
  if (subscriber_ == nullptr) subscribe();
} catch (...) {  // no memory: there is no ledger
}

/// Of one who joins after others: who joined by default gives way, and torch may have come since.
void CuptiLedger::adopt(const LedgerWish& wish) noexcept {
  if (wish_.is_default && !wish.is_default) {
    wish_.is_default = false;
    wish_.profiler = wish.profiler;
    counter_.set_threshold(wish.threshold);
    if (wish.profiler == ProfilerRule::yield) lift_gate();
  }
  wish_.at_once |= wish.at_once;
  wish_.needs_gate |= wish.needs_gate;
  if (subscriber_ == nullptr) return;
  gate_profiler();
  set_counting();
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

void CuptiLedger::profiler_begins() noexcept {
  if (is_dead_) return;
  const std::lock_guard lock(control_);
  if (users_ == 0) return;
  ++profilers_;
  // Its first preparation may be the very thing that brings the driver.
  if (subscriber_ == nullptr && wish_.profiler != ProfilerRule::yield && wish_.needs_gate &&
      world_.may_have_driver())
    gate_profiler();
  if (wish_.profiler != ProfilerRule::yield || is_gated() || has_yielded_) return;
  has_yielded_ = true;
  constexpr std::string_view kTo = "to PyTorch's profiler";
  if (subscriber_ != nullptr)
    stop(SyncReason::yielded, kTo);
  else
    set_state(SyncSource::none, SyncReason::yielded, kTo);
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
  std::uint32_t enabled = 0;
  return !has_failed_.load() &&
         functions_->get_callback_state(&enabled, subscriber_, cupti::Domain::runtime, kCanary) ==
             cupti::kSuccess &&
         enabled != 0;
}

/// Whatever was counted since the last look may be less than there was.
void CuptiLedger::follow_loss() noexcept {
  if (subscriber_ == nullptr || is_subscription_alive()) return;
  lost_generation_ = generation_.load();
  stop(SyncReason::lost, "another tool ended CUPTI for the whole process");
  next_try_ = world_.now() + kTryAgainSoon;
}

void CuptiLedger::look(bool may_subscribe) noexcept {
  if (is_dead_) return;
  const std::lock_guard lock(control_);
  if (users_ == 0) return;
  pass_time();
  (void)python_.look();
  const bool had_one = subscriber_ != nullptr;
  follow_loss();
  if (had_one) return;
  // The thread that trains asks: what the profiler reads from the environment may be set by nobody else.
  if (has_yielded_ || world_.now() < next_try_ || !(wish_.at_once || world_.has_driver())) return;
  if (may_subscribe)
    subscribe();
  else
    is_due_.store(true, std::memory_order_relaxed);
}

void CuptiLedger::subscribe() noexcept try {
  if (has_yielded_) return;
  pass_time();
  next_try_ = world_.now() + kTryAgain;
  if (!wish_.at_once && !world_.has_driver()) {
    next_try_ = world_.now();
    return set_state(SyncSource::none, SyncReason::no_cuda, "");
  }
  std::string why;
  functions_ = world_.load(wish_.library, why);
  if (functions_ == nullptr) return set_state(SyncSource::none, SyncReason::no_cupti, why);
  if (!make_room())
    return set_state(SyncSource::none, SyncReason::refused, "no memory for the tables");
  std::array<char, cupti::kOldNameBytes + 1> owner{};
  is_subscribing_.store(true);
  const int result = ask(*functions_, owner.data());
  is_subscribing_.store(false);
  if (result == cupti::kMultipleSubscribers) {
    const std::string name(owner.data());
    return set_state(SyncSource::none, SyncReason::taken,
                     name.empty() ? "by another tool" : "by " + name);
  }
  if (result != cupti::kSuccess) {
    const bool is_missing = result == cupti::kUnknownError && !world_.has_driver();
    return set_state(SyncSource::none, is_missing ? SyncReason::no_driver : SyncReason::refused,
                     word_of(*functions_, result));
  }
  gate_profiler();
  has_failed_.store(false);
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
  int enabled = 0;
  for (const CudaCall& call : cuda_calls()) {
    const char* name = nullptr;
    if (functions.get_callback_name(call.domain, call.id, &name) != cupti::kSuccess ||
        name == nullptr || std::string_view(name) != call.name)
      continue;
    enabled += functions.enable_callback(1, subscriber_, call.domain, call.id) == cupti::kSuccess;
  }
  (void)functions.enable_callback(1, subscriber_, cupti::Domain::state, cupti::kStateFatalError);
  return enabled > 0;
}

/// A thread may still be in the callback when this returns: nothing that it uses is ever freed.
void CuptiLedger::unsubscribe() noexcept {
  is_open_.store(false);
  if (generation_.load() % 2 == 1) generation_.fetch_add(1);
  if (subscriber_ != nullptr) (void)functions_->unsubscribe(subscriber_);
  subscriber_ = nullptr;
}

void CuptiLedger::stop(SyncReason why, std::string_view detail) noexcept {
  pass_time();
  if (why == SyncReason::lost) subscriber_ = nullptr;  // the handle died with the rest
  unsubscribe();
  ++gaps_;
  set_state(SyncSource::none, why, detail);
}

void CuptiLedger::set_counting() noexcept {
  set_state(SyncSource::cupti, gate_is_ours_ ? SyncReason::gated : SyncReason::counting, "");
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
  if (users_ > 0 && counted_from_ != 0)
    (source_ == SyncSource::cupti ? covered_ : blind_) += now - counted_from_;
  counted_from_ = now;
}

/// Where a CUPTI is too old to share, or not known yet, the profiler is told as if nobody had asked to.
bool CuptiLedger::shares() const noexcept {
  if (wish_.profiler != ProfilerRule::share || functions_ == nullptr) return false;
  std::uint32_t version = 0;
  (void)functions_->get_version(&version);
  return functions_->subscribe_v2 != nullptr && version >= cupti::kFirstMultipleVersion;
}

/// Asks PyTorch's profiler, before its first use, to leave the subscription alone.
void CuptiLedger::gate_profiler() noexcept {
  if (wish_.profiler == ProfilerRule::yield || shares() || !wish_.needs_gate || is_gated()) return;
  gate_is_ours_ = ::setenv(kGate, "1", /*overwrite=*/0) == 0;
}

void CuptiLedger::lift_gate() noexcept {
  if (std::exchange(gate_is_ours_, false)) (void)::unsetenv(kGate);
}

}  // namespace gradvane::collectors
