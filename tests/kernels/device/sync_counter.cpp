#include "tests/kernels/device/sync_counter.hpp"

#include <cupti.h>

#include <atomic>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradvane::kernels::test {
namespace {

bool begins_with_one_of(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  for (const std::string_view beginning : beginnings)
    if (name.starts_with(beginning)) return true;
  return false;
}

void check_cupti(const char* what, CUptiResult result) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  (void)cuptiGetResultString(result, &text);
  throw std::runtime_error(std::string(what) + ": " + (text != nullptr ? text : "?"));
}

}  // namespace

struct SyncCounter::State {
  CUpti_SubscriberHandle subscriber = nullptr;
  std::atomic<int> syncs{0};
  std::atomic<int> allocations{0};
  std::atomic<int> launches{0};

  static void CUPTIAPI on_call(void* self, CUpti_CallbackDomain /*domain*/, CUpti_CallbackId /*id*/,
                               const void* data) {
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (call.callbackSite != CUPTI_API_ENTER) return;
    auto& state = *static_cast<State*>(self);
    const std::string_view name = call.functionName;
    const bool copies = name.starts_with("cudaMemcpy") || name.starts_with("cudaMemset");
    const bool waits = copies ? name.find("Async") == std::string_view::npos
                              : name.find("Synchronize") != std::string_view::npos;
    state.syncs += waits ? 1 : 0;
    state.allocations +=
        begins_with_one_of(name, {"cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister"});
    state.launches += name.starts_with("cudaLaunchKernel") ? 1 : 0;
  }
};

SyncCounter::SyncCounter() : state_(std::make_unique<State>()) {
  check_cupti("cuptiSubscribe", cuptiSubscribe(&state_->subscriber, &State::on_call, state_.get()));
  check_cupti("cuptiEnableDomain",
              cuptiEnableDomain(1, state_->subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
}

SyncCounter::~SyncCounter() { (void)cuptiUnsubscribe(state_->subscriber); }

int SyncCounter::syncs() const { return state_->syncs; }
int SyncCounter::allocations() const { return state_->allocations; }
int SyncCounter::launches() const { return state_->launches; }

}  // namespace gradvane::kernels::test
