#pragma once
// A ledger over the real CUPTI, on a device, with memory and kernels that make calls wait or not.
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "bench/sync/delay.hpp"
#include "collectors/sync_ledger/cupti_ledger.hpp"
#include "record/names.hpp"
#include "tests/collectors/sync_ledger/immortal_ledger.hpp"
#include "tests/kernels/device/cuda_device.hpp"

namespace gradvane::collectors {

using Calls = std::map<std::string, std::int64_t>;

/// What a summary says of one origin, by kind; without what never happened.
inline Calls calls_by_kind(const record::SyncSummary& summary, record::SyncOrigin origin) {
  Calls calls;
  const auto& kinds = summary.totals[index_of(origin)];
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    if (kinds[kind].calls > 0)
      calls[std::string(record::kNames<record::SyncKind>[kind])] = kinds[kind].calls;
  return calls;
}

class OnRealCupti : public kernels::test::OnDevice {
 protected:
  /// How long a kernel takes that something waits behind, and from when on a call that may wait did. Far
  /// apart, so that a busy machine is not taken for a wait.
  static constexpr std::chrono::milliseconds kLong{60};
  static constexpr std::int64_t kThreshold = 15'000'000;
  static constexpr std::size_t kBytes = std::size_t{64} << 20;

  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ahead = 0;
    device_ = kernels::DeviceMemory(kBytes);
    other_ = kernels::DeviceMemory(kBytes);
    pageable_.resize(kBytes);
    ASSERT_CUDA(cudaHostAlloc(&pinned_, kBytes, cudaHostAllocDefault));
    warm_up();
    CuptiLedger::World world = CuptiLedger::real_world();
    world.now = [] {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      return std::chrono::nanoseconds(now).count() + ahead;
    };
    ledger_ = immortal_ledger(world);
  }

  void TearDown() override {
    if (ledger_ != nullptr) {
      (void)ledger_->set_scope(nullptr);
      ledger_->leave();
    }
    (void)cudaFreeHost(pinned_);
  }

  /// From here on.
  void count() {
    ledger_->join({.threshold = kThreshold});
    const record::SyncSummary now = ledger_->summary();
    ASSERT_EQ(now.source, record::SyncSource::cupti)
        << record::name_of(now.reason) << ' ' << now.detail;
  }
  [[nodiscard]] Calls calls(record::SyncOrigin origin = record::SyncOrigin::training) const {
    return calls_by_kind(ledger_->summary(), origin);
  }
  [[nodiscard]] std::int64_t polls() const { return ledger_->summary().polls[0].calls; }
  static void pass(std::chrono::seconds time) { ahead += std::chrono::nanoseconds(time).count(); }

  [[nodiscard]] void* on_device() const { return device_.data(); }
  [[nodiscard]] void* on_device_too() const { return other_.data(); }
  [[nodiscard]] void* pageable() { return pageable_.data(); }
  [[nodiscard]] void* pinned() const { return pinned_; }

  CuptiLedger* ledger_ = nullptr;

 private:
  /// The driver loads code and makes buffers when they are first used: before anybody counts.
  void warm_up() {
    ASSERT_CUDA(bench::enqueue_delay(std::chrono::microseconds(1), nullptr));
    ASSERT_CUDA(bench::enqueue_nothing(nullptr));
    for (void* host : {pageable(), pinned()}) {
      ASSERT_CUDA(cudaMemcpy(on_device(), host, kBytes, cudaMemcpyHostToDevice));
      ASSERT_CUDA(cudaMemcpy(host, on_device(), kBytes, cudaMemcpyDeviceToHost));
      ASSERT_CUDA(cudaMemcpyAsync(on_device(), host, kBytes, cudaMemcpyHostToDevice, nullptr));
      ASSERT_CUDA(cudaMemcpyAsync(host, on_device(), kBytes, cudaMemcpyDeviceToHost, nullptr));
    }
    ASSERT_CUDA(cudaMemcpy(on_device_too(), on_device(), kBytes, cudaMemcpyDeviceToDevice));
    ASSERT_CUDA(cudaDeviceSynchronize());
  }

  static inline std::atomic<std::int64_t> ahead{0};  ///< of the clock

  kernels::DeviceMemory device_;
  kernels::DeviceMemory other_;
  std::vector<std::byte> pageable_;
  void* pinned_ = nullptr;
};

}  // namespace gradvane::collectors
