#include "collectors/sync_ledger/cupti/cupti_subscription.hpp"

#include <chrono>
#include <string_view>

#include "collectors/sync_ledger/cupti/cupti_library.hpp"

namespace gradvane::collectors {
namespace {

constexpr const char* kOurName = "Gradvane";

// Signs of life that CUPTI gave on this thread. In memory that every thread has from its birth.
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uint32_t signs = 0;

std::int64_t monotonic_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CuptiSubscription::World CuptiSubscription::real_world() noexcept {
  return {&cupti::load,
          &cupti::driver_is_loaded,
          [] { return cupti::is_in_process("libproton"); },
          &cupti::call_driver,
          &monotonic_nanoseconds,
          [] {}};
}

void CuptiSubscription::on_callback(void* user, cupti::Domain domain, std::uint32_t id,
                                    const void* data) {
  auto& subscription = *static_cast<CuptiSubscription*>(user);
  if (!subscription.is_open_.load(std::memory_order_relaxed) || data == nullptr) return;
  if (domain == cupti::Domain::state) {
    if (id == cupti::kStateFatalError)
      subscription.has_failed_.store(true, std::memory_order_relaxed);
    return;
  }
  if (domain == cupti::Domain::driver && id == cupti::kDriverGetVersion) {
    ++signs;
    return;
  }
  subscription.intake_.take(domain, id, *static_cast<const cupti::CallbackData*>(data),
                            subscription.generation());
}

/// Makes a call that raises a callback, on this thread, and looks whether it did. CUPTI itself is asked
/// nothing: it may have been ended, and what it gave us with it.
bool CuptiSubscription::still_calls_back() noexcept {
  const std::uint32_t before = signs;
  call_driver_();
  return signs != before;
}

bool CuptiSubscription::is_alive() noexcept {
  if (has_failed_.load()) return false;
  if (!still_calls_back()) return !has_sign_.load();
  if (!has_sign_.load()) has_sign_.store(true);
  return true;
}

CuptiSubscription::Answer CuptiSubscription::ask(const cupti::Functions& functions,
                                                 bool shared) noexcept {
  functions_ = &functions;
  subscriber_ = nullptr;
  Answer answer;
  if (functions.subscribe_v2 != nullptr) {
    cupti::SubscriberParams params;
    params.struct_size = shared ? sizeof params : cupti::kSingleParamsSize;
    params.name = kOurName;
    params.old_name = answer.holder.data();
    params.old_name_size = cupti::kOldNameBytes;
    params.allow_multiple = shared ? 1 : 0;
    answer.result = functions.subscribe_v2(&subscriber_, &on_callback, this, &params);
  } else {
    answer.result = functions.subscribe(&subscriber_, &on_callback, this);
  }
  if (answer.result != cupti::kSuccess) subscriber_ = nullptr;
  return answer;
}

/// A call that this CUPTI knows by another name, or not at all, is left out.
bool CuptiSubscription::count_calls() noexcept {
  const auto enable = [&](cupti::Domain domain, std::uint32_t id, const char* expected) {
    const char* name = nullptr;
    return functions_->get_callback_name(domain, id, &name) == cupti::kSuccess && name != nullptr &&
           std::string_view(name) == expected &&
           functions_->enable_callback(1, subscriber_, domain, id) == cupti::kSuccess;
  };
  has_failed_.store(false);
  has_sign_.store(false);
  is_open_.store(true);
  enabled_ = 0;
  for (const CudaCall& call : cuda_calls())
    enabled_ += enable(call.domain, call.id, call.name) ? 1 : 0;
  (void)functions_->enable_callback(1, subscriber_, cupti::Domain::state, cupti::kStateFatalError);
  // While the driver is being set up there may be no sign yet: each look asks again.
  has_sign_.store(
      enable(cupti::Domain::driver, cupti::kDriverGetVersion, cupti::kDriverGetVersionName) &&
      still_calls_back());
  if (enabled_ == 0) return false;
  generation_.fetch_add(1);
  return true;
}

void CuptiSubscription::give_back() noexcept {
  // The handle of a CUPTI that has been ended leads anywhere, so it is given back only to a living one.
  const bool is_ours = subscriber_ != nullptr && is_alive();
  is_open_.store(false);
  if (generation_.load() % 2 == 1) generation_.fetch_add(1);
  if (is_ours) (void)functions_->unsubscribe(subscriber_);
  subscriber_ = nullptr;
}

}  // namespace gradvane::collectors
