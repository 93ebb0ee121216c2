// The fake CUPTI as a library, with a fake CUDA beside it whose calls raise its callbacks: for programs that
// are watched from within, in C++ or in Python.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "tests/collectors/sync_ledger/fake_cupti.hpp"

#define EXPORTED extern "C" [[gnu::visibility("default")]]

namespace {

using namespace gradvane::collectors;

FakeCupti& fake() { return FakeCupti::instance(); }

/// The driver's own lock: held while it is set up, and asked for by whoever subscribes.
std::recursive_mutex driver;
std::atomic<int> waiting_for_driver{0};

class WithDriver {
 public:
  WithDriver() {
    ++waiting_for_driver;
    driver.lock();
    --waiting_for_driver;
  }
  ~WithDriver() { driver.unlock(); }
  WithDriver(const WithDriver&) = delete;
  WithDriver& operator=(const WithDriver&) = delete;
};

void wait(long microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

void copy_async(std::int32_t kind, long microseconds) {
  const CopyParams params{.kind = kind};
  fake().call("cudaMemcpyAsync_v3020", &params, 0, [&] { wait(microseconds); });
}

void wait_for_stream(long microseconds) {
  const StreamParams params;
  fake().call("cudaStreamSynchronize_v3020", &params, 0, [&] { wait(microseconds); });
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): CUPTI's names
EXPORTED int cuptiSubscribe(cupti::Subscriber* subscriber, cupti::Callback callback, void* user) {
  const WithDriver driver_is_ours;
  return fake().functions().subscribe(subscriber, callback, user);
}
EXPORTED int cuptiSubscribe_v2(cupti::Subscriber* subscriber, cupti::Callback callback, void* user,
                               cupti::SubscriberParams* params) {
  const WithDriver driver_is_ours;
  return fake().functions().subscribe_v2(subscriber, callback, user, params);
}
EXPORTED int cuptiUnsubscribe(cupti::Subscriber subscriber) {
  return fake().functions().unsubscribe(subscriber);
}
EXPORTED int cuptiEnableCallback(std::uint32_t enable, cupti::Subscriber subscriber,
                                 cupti::Domain domain, std::uint32_t id) {
  return fake().functions().enable_callback(enable, subscriber, domain, id);
}
EXPORTED int cuptiGetVersion(std::uint32_t* version) {
  return fake().functions().get_version(version);
}
EXPORTED int cuptiGetResultString(int result, const char** text) {
  return fake().functions().get_result_string(result, text);
}
EXPORTED int cuptiGetCallbackName(cupti::Domain domain, std::uint32_t id, const char** name) {
  return fake().functions().get_callback_name(domain, id, name);
}
// NOLINTEND(readability-identifier-naming)

/// As `tensor.item()`: an asynchronous copy to the host, and a wait for it.
EXPORTED void fake_item(long microseconds) {
  copy_async(2, 0);
  wait_for_stream(microseconds);
}
/// As `tensor.to("cuda", non_blocking=True)` of pageable memory.
EXPORTED void fake_pageable_copy(long microseconds) { copy_async(1, microseconds); }
EXPORTED void fake_synchronize(long microseconds) {
  fake().call("cudaDeviceSynchronize_v3020", nullptr, 0, [&] { wait(microseconds); });
}
/// Nanoseconds of a pair of callbacks, of `calls` stream syncs that last no time.
EXPORTED double fake_measure(long calls) {
  using Clock = std::chrono::steady_clock;
  const FakeCupti::Call call = fake().find("cudaStreamSynchronize_v3020");
  const auto begin = Clock::now();
  for (long i = 0; i < calls; ++i) fake().raise_pair(call);
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() /
         static_cast<double>(calls);
}
EXPORTED void fake_poll() { fake().call("cudaEventQuery_v3020"); }
/// Any call by its name; `result` is what it returns.
EXPORTED void fake_call(const char* name, long microseconds, int result) {
  fake().call(name, nullptr, result, [&] { wait(microseconds); });
}
/// A method of Python's, with no library between it and the interpreter, but ours. Returns `self`, as `self.method()`.
EXPORTED void* fake_method(void* self, void*) {
  fake().call("cudaDeviceSynchronize_v3020", nullptr, 0, [] { wait(1000); });
  return self;
}
EXPORTED void fake_driver_lock() { driver.lock(); }
EXPORTED void fake_driver_unlock() { driver.unlock(); }
/// Threads that subscribe, and wait for the driver.
EXPORTED int fake_waiting_for_driver() { return waiting_for_driver; }
/// What the fake driver's cuDriverGetVersion raises.
EXPORTED void fake_driver_call() { fake().call_driver(); }
EXPORTED int fake_dead_handles() { return fake().dead_handles(); }
EXPORTED void fake_finalize() { fake().finalize(); }
EXPORTED void fake_take_by(const char* owner) { fake().take_by(owner); }
EXPORTED int fake_is_subscribed() { return fake().is_subscribed() ? 1 : 0; }
