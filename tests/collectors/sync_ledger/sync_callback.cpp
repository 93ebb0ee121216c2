// What the ledger's own callbacks cost the calling thread, begin and end of one call together, over a CUPTI
// that does nothing: without a subscriber, with one that returns at once, and with the ledger. They take
// turns. Prints one JSON object a line.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "collectors/sync_ledger/cupti_ledger.hpp"
#include "tests/collectors/sync_ledger/fake_cupti.hpp"

namespace {

using namespace gradvane::collectors;
using Clock = std::chrono::steady_clock;

constexpr int kCalls = 4'000;  // no more than a thread's events between two looks of the worker
constexpr int kRounds = 301;

FakeCupti& fake() { return FakeCupti::instance(); }

struct Case {
  const char* name;
  const char* call;
  const char* scope;
};

double nanoseconds(const FakeCupti::Call& call) {
  const auto begin = Clock::now();
  for (int i = 0; i < kCalls; ++i) fake().raise_pair(call);
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kCalls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

void return_at_once(void*, cupti::Domain, std::uint32_t, const void*) {}

/// Somebody who listens and does nothing.
void subscribe_nobody(cupti::Subscriber& subscriber) {
  (void)fake().functions().subscribe(&subscriber, &return_at_once, nullptr);
  for (const CudaCall& call : cuda_calls())
    (void)fake().functions().enable_callback(1, subscriber, call.domain, call.id);
}

/// A native caller beyond a library that is passed over, as a program calls CUDA: the fake as a library.
int measure_native() {
  static CuptiLedger* ledger = [] {
    auto world = CuptiLedger::real_world();
    world.has_driver = [] { return true; };
    return new CuptiLedger(world);
  }();
  void* library = ::dlopen(GRADVANE_FAKE_CUDA, RTLD_NOW);
  const auto measure = reinterpret_cast<double (*)(long)>(::dlsym(library, "fake_measure"));
  std::vector<double> counted;
  for (int round = 0; round < kRounds; ++round) {
    ledger->join({.library = GRADVANE_FAKE_CUDA});
    (void)ledger->end_step();
    counted.push_back(measure(kCalls));
    ledger->collect();
    ledger->leave();
  }
  const auto summary = ledger->summary();
  std::printf(
      "{\"bench\": \"sync_callback\", \"case\": \"stream sync, native caller\", \"calls\": %d, "
      "\"ledger_ns\": %.1f, \"site\": \"%s\"}\n",
      kCalls, median(counted), summary.sites.empty() ? "" : summary.sites[0].location.c_str());
  return summary.sites.empty() ? 1 : 0;
}

}  // namespace

int main() {
  static CuptiLedger* ledger = [] {
    auto world = CuptiLedger::real_world();
    world.load = [](const std::string&, std::string&) { return &fake().functions(); };
    world.has_driver = [] { return true; };
    world.call_driver = [] { fake().call_driver(); };
    return new CuptiLedger(world);  // never destroyed, as in life
  }();
  constexpr Case kCases[] = {
      {"stream sync, named scope", "cudaStreamSynchronize_v3020", "scope"},
      {"free that does not block", "cudaFree_v3020", nullptr},
      {"event poll", "cudaEventQuery_v3020", nullptr},
      {"async copy, named scope", "cudaMemcpyAsync_v3020", "scope"},
  };
  for (const Case& one : kCases) {
    const FakeCupti::Call call = fake().find(one.call);
    std::vector<double> nobody, idle, counted;
    for (int round = 0; round < kRounds; ++round) {
      nobody.push_back(nanoseconds(call));
      cupti::Subscriber subscriber = nullptr;
      subscribe_nobody(subscriber);
      idle.push_back(nanoseconds(call));
      (void)fake().functions().unsubscribe(subscriber);
      ledger->join({});
      (void)ledger->end_step();  // as in a run that takes steps: its syncs are booked on them
      (void)ledger->set_scope(one.scope);
      counted.push_back(nanoseconds(call));
      (void)ledger->set_scope(nullptr);
      ledger->collect();
      ledger->leave();
    }
    std::printf(
        "{\"bench\": \"sync_callback\", \"case\": \"%s\", \"calls\": %d, \"no_subscriber_ns\": "
        "%.1f, \"empty_callback_ns\": %.1f, \"ledger_ns\": %.1f, \"own_ns\": %.1f}\n",
        one.name, kCalls, median(nobody), median(idle), median(counted),
        median(counted) - median(idle));
  }
  return measure_native();
}
