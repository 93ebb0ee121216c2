#pragma once
// A ledger over the fake CUPTI, with a clock that tests move.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "collectors/sync_ledger/cupti_ledger.hpp"
#include "record/names.hpp"
#include "tests/collectors/sync_ledger/fake_cupti.hpp"
#include "tests/collectors/sync_ledger/immortal_ledger.hpp"

namespace gradvane::collectors {

inline std::atomic<std::int64_t> fake_now{1};
inline std::atomic<bool> fake_driver{true};
inline std::atomic<bool> fake_library{true};
inline std::atomic<bool> fake_proton{false};
inline std::atomic<int> fake_loads{0};

inline constexpr const char* kSync = "cudaStreamSynchronize_v3020";
inline constexpr std::int64_t kMicrosecond = 1'000;
inline constexpr std::int64_t kSecond = 1'000'000'000;

inline CuptiLedger::World fake_world() {
  return {[](const std::string&, std::string& why) -> const cupti::Functions* {
            if (fake_library) return &FakeCupti::instance().functions();
            why = "no libcupti.so.13 or .12 is found";
            return nullptr;
          },
          [] { return fake_driver.load(); },
          [] { return fake_proton.load(); },
          [] {
            if (fake_driver) FakeCupti::instance().call_driver();
          },
          [] { return fake_now.load(); },
          [] { ++fake_loads; }};
}

/// What a summary says of one origin, by kind; without what never happened.
inline std::map<std::string, std::int64_t> calls_of(
    const record::SyncSummary& summary, record::SyncOrigin origin = record::SyncOrigin::training) {
  std::map<std::string, std::int64_t> calls;
  for (std::size_t kind = 0; kind < record::kSyncKinds; ++kind) {
    const auto count = summary.totals[index_of(origin)][kind].calls;
    if (count > 0) calls[std::string(record::kNames<record::SyncKind>[kind])] = count;
  }
  return calls;
}

using Calls = std::map<std::string, std::int64_t>;

class LedgerTest : public testing::Test {
 public:
  ~LedgerTest() override {
    while (ledger_->summary().source != record::SyncSource::off) ledger_->leave();
  }

 protected:
  LedgerTest() {
    cupti_.reset();
    fake_now = 1;
    fake_driver = fake_library = true;
    fake_proton = false;
    fake_loads = 0;
    ledger_ = immortal_ledger(fake_world());
  }

  /// The worker looks, and the thread that trains comes by.
  void look_and_step() {
    ledger_->look(false);
    (void)ledger_->end_step();
  }
  void pass(std::int64_t nanoseconds) { fake_now += nanoseconds; }
  /// A call that takes so long.
  void call(const char* name, std::int64_t nanoseconds, const void* params = nullptr,
            int result = 0) {
    cupti_.call(name, params, result, [&] { pass(nanoseconds); });
  }
  [[nodiscard]] std::int64_t dropped(record::SyncDrop why) {
    return ledger_->summary().dropped[static_cast<std::size_t>(why)];
  }

  FakeCupti& cupti_ = FakeCupti::instance();
  CuptiLedger* ledger_;
};

}  // namespace gradvane::collectors
