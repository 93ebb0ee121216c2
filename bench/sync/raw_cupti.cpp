#include "bench/sync/raw_cupti.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "collectors/sync_ledger/cupti/cuda_calls.hpp"
#include "collectors/sync_ledger/cupti/cupti_library.hpp"

namespace gradvane::bench {
namespace {

std::string library_path;  // NOLINT(*-global-variables): set once, by main

RawCupti load() {
  RawCupti raw;
  std::string why;
  raw.functions = cupti::load(library_path, why);
  if (raw.functions == nullptr) {
    std::fprintf(stderr, "sync_probe: %s\n", why.c_str());
    std::exit(1);
  }
  void* library = ::dlopen(library_path.empty() ? "libcupti.so.13" : library_path.c_str(),
                           RTLD_NOW | RTLD_NOLOAD);
  raw.enable_domain =
      reinterpret_cast<decltype(raw.enable_domain)>(::dlsym(library, "cuptiEnableDomain"));
  raw.finalize = reinterpret_cast<decltype(raw.finalize)>(::dlsym(library, "cuptiFinalize"));
  raw.get_callback_state =
      reinterpret_cast<decltype(raw.get_callback_state)>(::dlsym(library, "cuptiGetCallbackState"));
  return raw;
}

}  // namespace

void RawCupti::set_path(std::string path) { library_path = std::move(path); }

const RawCupti& RawCupti::instance() {
  static const RawCupti kRaw = load();
  return kRaw;
}

std::string RawCupti::word(int result) const {
  const char* text = nullptr;
  if (functions->get_result_string(result, &text) != cupti::kSuccess || text == nullptr) text = "?";
  return std::string(text) + " (" + std::to_string(result) + ")";
}

Listener::Listener() {
  seen.reserve(1 << 16);  // nothing is allocated in a callback
  const cupti::Functions& functions = *RawCupti::instance().functions;
  if (functions.subscribe_v2 == nullptr) {
    result_ = functions.subscribe(&handle_, &on_callback, this);
    return;
  }
  cupti::SubscriberParams params;
  params.struct_size = cupti::kSingleParamsSize;
  params.name = "sync_probe";
  params.old_name = owner_;
  params.old_name_size = cupti::kOldNameBytes;
  result_ = functions.subscribe_v2(&handle_, &on_callback, this, &params);
}

Listener::~Listener() { unsubscribe(); }

void Listener::unsubscribe() {
  if (handle_ != nullptr && result_ == cupti::kSuccess)
    (void)RawCupti::instance().functions->unsubscribe(handle_);
  handle_ = nullptr;
}

void Listener::hear_all(cupti::Domain domain) {
  enabled_ += RawCupti::instance().enable_domain(1, handle_, domain) == cupti::kSuccess;
}

void Listener::hear_ledgers(bool copies_too) {
  for (const collectors::CudaCall& call : collectors::cuda_calls()) {
    if (!copies_too && call.what == collectors::CallClass::copy_async) continue;
    enabled_ += RawCupti::instance().functions->enable_callback(1, handle_, call.domain, call.id) ==
                cupti::kSuccess;
  }
}

void Listener::hear_sign_of_life() {
  enabled_ += RawCupti::instance().functions->enable_callback(
                  1, handle_, cupti::Domain::driver, cupti::kDriverGetVersion) == cupti::kSuccess;
}

void Listener::on_callback(void* self, cupti::Domain domain, std::uint32_t id, const void* data) {
  auto& listener = *static_cast<Listener*>(self);
  Seen one{domain, cupti::Site::enter, "", id, 0, nanoseconds_now(), 0};
  if (domain == cupti::Domain::runtime || domain == cupti::Domain::driver) {
    const auto& call = *static_cast<const cupti::CallbackData*>(data);
    one.site = call.site;
    one.name = call.function_name;
    one.correlation = call.correlation_id;
    if (call.site == cupti::Site::exit && call.return_value != nullptr)
      one.result = *static_cast<const int*>(call.return_value);
  }
  if (listener.seen.size() < listener.seen.capacity()) listener.seen.push_back(one);
  if (listener.also) listener.also(one);
}

void say(const char* probe, const char* format, ...) {
  std::printf("%s ", probe);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
  std::fflush(stdout);
}

std::int64_t nanoseconds_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double milliseconds_of(const std::function<void()>& work) {
  const std::int64_t begin = nanoseconds_now();
  work();
  return 1e-6 * static_cast<double>(nanoseconds_now() - begin);
}

void* driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess)
    return nullptr;
  return function;
}

}  // namespace gradvane::bench
