#include "tests/collectors/sync_ledger/fake_cupti.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "collectors/sync_ledger/cupti/cuda_calls.hpp"

namespace gradvane::collectors {
namespace {

constexpr int kInvalidParameter = 1;

struct State {
  std::mutex mutex;
  std::atomic<cupti::Callback> callback{nullptr};
  std::atomic<void*> user{nullptr};
  std::array<std::array<std::atomic<bool>, 1024>, 8> enabled{};
  std::atomic<int> refusal{0};
  std::atomic<int> subscriptions{0};
  std::atomic<int> dead_handles{0};
  std::atomic<bool> hides_signs{false};
  std::string owner;
  std::function<void()> hook;
  std::string renamed;
  cupti::SubscriberParams params;
  std::atomic<std::uintptr_t> handle{0};
  std::uintptr_t next_handle = 0x1000;
};
State state;

std::atomic<bool>& flag_of(cupti::Domain domain, std::uint32_t id) {
  return state.enabled[static_cast<std::size_t>(domain)][id];
}

/// The real one may crash over a handle that is dead.
bool is_handle(cupti::Subscriber subscriber) {
  const bool is_ours =
      subscriber != nullptr && reinterpret_cast<std::uintptr_t>(subscriber) == state.handle.load();
  if (!is_ours) ++state.dead_handles;
  return is_ours;
}

int subscribe_v2(cupti::Subscriber* subscriber, cupti::Callback callback, void* user,
                 cupti::SubscriberParams* params) {
  if (state.hook) state.hook();
  const std::lock_guard lock(state.mutex);
  if (params != nullptr) std::memcpy(&state.params, params, params->struct_size);
  if (state.refusal != 0) return state.refusal;
  const bool is_taken = !state.owner.empty() || state.handle.load() != 0;
  if (is_taken) {
    const std::string& owner =
        state.owner.empty() ? std::string("CUPTI for somebody") : state.owner;
    if (params != nullptr && params->old_name != nullptr)
      std::strncpy(params->old_name, owner.c_str(), params->old_name_size);
    return cupti::kMultipleSubscribers;
  }
  state.user = user;
  state.callback = callback;
  state.handle = state.next_handle += 16;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a name only, never followed
  *subscriber = reinterpret_cast<cupti::Subscriber>(state.handle.load());
  ++state.subscriptions;
  return cupti::kSuccess;
}

int subscribe(cupti::Subscriber* subscriber, cupti::Callback callback, void* user) {
  return subscribe_v2(subscriber, callback, user, nullptr);
}

void disable_all() {
  for (auto& domain : state.enabled)
    for (auto& one : domain) one = false;
}

int unsubscribe(cupti::Subscriber subscriber) {
  const std::lock_guard lock(state.mutex);
  if (!is_handle(subscriber)) return kInvalidParameter;
  disable_all();
  state.callback = nullptr;
  state.handle = 0;
  return cupti::kSuccess;
}

int enable_callback(std::uint32_t on, cupti::Subscriber subscriber, cupti::Domain domain,
                    std::uint32_t id) {
  if (!is_handle(subscriber) || id >= 1024) return kInvalidParameter;
  flag_of(domain, id) = on != 0;
  return cupti::kSuccess;
}

int get_version(std::uint32_t* version) {
  *version = 130001;
  return cupti::kSuccess;
}

int get_result_string(int result, const char** text) {
  *text = result == 41 ? "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED" : "CUPTI_ERROR_OTHER";
  return cupti::kSuccess;
}

int get_callback_name(cupti::Domain domain, std::uint32_t id, const char** name) {
  if (domain == cupti::Domain::driver && id == cupti::kDriverGetVersion) {
    *name = cupti::kDriverGetVersionName;
    return cupti::kSuccess;
  }
  const CudaCall* call = cuda_call(domain, id);
  if (call == nullptr) return kInvalidParameter;
  *name = call->name == state.renamed ? "cudaSomethingElse_v99999" : call->name;
  return cupti::kSuccess;
}

const CudaCall& call_named(const char* name) {
  for (const CudaCall& call : cuda_calls())
    if (std::strcmp(call.name, name) == 0) return call;
  throw std::invalid_argument(name);
}

void raise(cupti::Domain domain, std::uint32_t id, cupti::Site site, const char* name,
           const void* params, std::uint64_t& correlation, const int* result) {
  const cupti::Callback callback = state.callback;
  if (callback == nullptr || !flag_of(domain, id)) return;
  cupti::CallbackData data;
  data.site = site;
  data.function_name = name;
  data.params = params;
  data.return_value = result;
  data.correlation_data = &correlation;
  callback(state.user, domain, id, &data);
}

void raise(cupti::Site site, const char* name, const void* params, std::uint64_t& correlation,
           const int* result) {
  const CudaCall& call = call_named(name);
  raise(call.domain, call.id, site, name, params, correlation, result);
}

}  // namespace

FakeCupti& FakeCupti::instance() {
  static FakeCupti fake;
  return fake;
}

FakeCupti::FakeCupti()
    : functions_{&subscribe,   &subscribe_v2,      &unsubscribe,      &enable_callback,
                 &get_version, &get_result_string, &get_callback_name} {}

void FakeCupti::reset() {
  const std::lock_guard lock(state.mutex);
  disable_all();
  state.callback = nullptr;
  state.handle = 0;
  state.refusal = 0;
  state.subscriptions = 0;
  state.dead_handles = 0;
  state.hides_signs = false;
  state.owner.clear();
  state.hook = nullptr;
  state.renamed.clear();
  state.params = {};
}

void FakeCupti::take_by(const std::string& owner) {
  const std::lock_guard lock(state.mutex);
  state.owner = owner;
}

void FakeCupti::on_subscribe(std::function<void()> hook) { state.hook = std::move(hook); }

void FakeCupti::rename(const char* call) { state.renamed = call; }

void FakeCupti::refuse(int result) { state.refusal = result; }

void FakeCupti::finalize() {
  const std::lock_guard lock(state.mutex);
  disable_all();
  state.callback = nullptr;
  state.handle = 0;
}

void FakeCupti::hide_signs(bool are_hidden) { state.hides_signs = are_hidden; }

int FakeCupti::dead_handles() const { return state.dead_handles; }

void FakeCupti::announce_fatal_error() {
  const cupti::Callback callback = state.callback;
  int unused = 0;
  if (callback != nullptr && flag_of(cupti::Domain::state, cupti::kStateFatalError))
    callback(state.user, cupti::Domain::state, cupti::kStateFatalError, &unused);
}

bool FakeCupti::is_subscribed() const { return state.handle.load() != 0; }

int FakeCupti::subscriptions() const { return state.subscriptions; }

int FakeCupti::enabled() const {
  int sum = 0;
  for (const auto& domain : state.enabled)
    for (const auto& one : domain) sum += one ? 1 : 0;
  return sum;
}

const cupti::SubscriberParams& FakeCupti::last_params() const { return state.params; }

void FakeCupti::call(const char* name, const void* params, int result,
                     const std::function<void()>& inside) {
  std::uint64_t correlation = 0;
  enter(name, params, correlation);
  if (inside) inside();
  exit(name, params, correlation, result);
}

FakeCupti::Call FakeCupti::find(const char* name) const { return {&call_named(name), {}}; }

void FakeCupti::raise_pair(const Call& call) noexcept {
  const cupti::Callback callback = state.callback.load(std::memory_order_relaxed);
  if (callback == nullptr) return;
  void* const user = state.user.load(std::memory_order_relaxed);
  std::uint64_t correlation = 0;
  const int result = 0;
  cupti::CallbackData data;
  data.function_name = call.what->name;
  data.params = &call.params;
  data.correlation_data = &correlation;
  callback(user, call.what->domain, call.what->id, &data);
  data.site = cupti::Site::exit;
  data.return_value = &result;
  callback(user, call.what->domain, call.what->id, &data);
}

void FakeCupti::call_driver() {
  if (state.hides_signs) return;
  std::uint64_t correlation = 0;
  const int result = 0;
  for (const auto site : {cupti::Site::enter, cupti::Site::exit})
    raise(cupti::Domain::driver, cupti::kDriverGetVersion, site, cupti::kDriverGetVersionName,
          nullptr, correlation, &result);
}

void FakeCupti::enter(const char* name, const void* params, std::uint64_t& correlation) {
  raise(cupti::Site::enter, name, params, correlation, nullptr);
}

void FakeCupti::exit(const char* name, const void* params, std::uint64_t& correlation, int result) {
  raise(cupti::Site::exit, name, params, correlation, &result);
}

}  // namespace gradvane::collectors
