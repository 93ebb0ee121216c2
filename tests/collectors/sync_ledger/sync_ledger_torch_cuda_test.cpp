// What PyTorch's own operations come to.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "record/names.hpp"
#include "tests/collectors/sync_ledger/immortal_ledger.hpp"

namespace gradvane::collectors {
namespace {

using Calls = std::map<std::string, std::int64_t>;

class SyncLedgerOnTorch : public testing::Test {
 protected:
  static constexpr int kTimes = 3;

  void SetUp() override {
    if (torch::cuda::is_available()) return;
    const char* must_run = std::getenv("GRADVANE_GPU_TESTS_MUST_RUN");
    if (must_run != nullptr && std::string(must_run) == "1") FAIL() << "no CUDA device";
    GTEST_SKIP() << "no CUDA device";
  }

  /// Syncs of three times `work`, once what it does at first is done.
  static Calls syncs_of(const std::function<void()>& work) {
    for (int i = 0; i < 3; ++i) work();
    torch::cuda::synchronize();
    CuptiLedger* ledger = immortal_ledger(CuptiLedger::real_world());
    ledger->join({.threshold = 15'000'000});
    EXPECT_EQ(ledger->summary().source, record::SyncSource::cupti) << ledger->summary().detail;
    for (int i = 0; i < kTimes; ++i) work();
    const record::SyncSummary summary = ledger->summary();
    ledger->leave();
    Calls calls;
    for (std::size_t kind = 0; kind < record::kSyncKinds; ++kind)
      if (const auto count = summary.totals[0][kind].calls; count > 0)
        calls[std::string(record::kNames<record::SyncKind>[kind])] = count;
    return calls;
  }

  static Calls one_read() { return {{"d2h_read", kTimes}}; }
};

at::Tensor on_device() { return at::randn({64, 64}, at::TensorOptions().device(at::kCUDA)); }

TEST_F(SyncLedgerOnTorch, ItemIsOneRead) {
  const at::Tensor x = on_device().sum();
  EXPECT_EQ(syncs_of([&] { (void)x.item<float>(); }), one_read());
}

TEST_F(SyncLedgerOnTorch, TheItemOfALossIsOneRead) {
  const at::Tensor x = on_device();
  const at::Tensor y = on_device();
  EXPECT_EQ(syncs_of([&] { (void)at::mse_loss(x, y).item<float>(); }), one_read());
}

TEST_F(SyncLedgerOnTorch, CpuIsOneRead) {
  const at::Tensor x = on_device();
  EXPECT_EQ(syncs_of([&] { (void)x.cpu(); }), one_read());
  EXPECT_EQ(syncs_of([&] { (void)x.to(at::kCPU); }), one_read());
}

TEST_F(SyncLedgerOnTorch, NonzeroIsOneRead) {
  const at::Tensor x = on_device();
  EXPECT_EQ(syncs_of([&] { (void)x.nonzero(); }), one_read());
}

TEST_F(SyncLedgerOnTorch, ABlockingCopyToTheDeviceIsOneCopy) {
  const at::Tensor x = on_device().cpu();
  EXPECT_EQ(syncs_of([&] { (void)x.to(at::kCUDA); }), (Calls{{"memcpy", kTimes}}));
}

TEST_F(SyncLedgerOnTorch, WorkThatStaysOnTheDeviceIsNone) {
  const at::Tensor x = on_device();
  EXPECT_EQ(syncs_of([&] { (void)x.mm(x).relu().sum().mul(2); }), Calls{});
}

}  // namespace
}  // namespace gradvane::collectors
