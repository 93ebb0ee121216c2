// Which calls count as a host sync, of which kind, and how often: the sequences that the CUDA runtime and
// driver raise, without either.
#include <gmock/gmock.h>

#include <thread>

#include "tests/collectors/sync_ledger/counting_ledger.hpp"

namespace gradvane::collectors {
namespace {

using record::SyncDrop;
using record::SyncOrigin;
using testing::IsEmpty;

constexpr std::int32_t kHostToDevice = 1;
constexpr std::int32_t kDeviceToHost = 2;
constexpr std::int32_t kDeviceToDevice = 3;

class CallCounterTest : public LedgerTest {
 protected:
  CallCounterTest() { ledger_->join({}); }
  Calls calls() { return calls_of(ledger_->summary()); }
  double seconds(record::SyncKind kind) {
    return ledger_->summary().totals[0][index_of(kind)].seconds;
  }
};

TEST_F(CallCounterTest, ACallOfTheRuntimeAloneCountsOnce) {
  call("cudaDeviceSynchronize_v3020", 3 * kMicrosecond);
  EXPECT_EQ(calls(), (Calls{{"device", 1}}));
  EXPECT_DOUBLE_EQ(seconds(record::SyncKind::device), 3e-6);
}

TEST_F(CallCounterTest, ACallOfTheDriverAloneCountsOnce) {
  call("cuStreamSynchronize", 5 * kMicrosecond);
  call("cuCtxSynchronize_v2", 5 * kMicrosecond);
  EXPECT_EQ(calls(), (Calls{{"stream", 1}, {"device", 1}}));
}

TEST_F(CallCounterTest, ACallOfTheDriverWithinOneOfTheRuntimeIsTheSameSync) {
  cupti_.call("cudaStreamSynchronize_v3020", nullptr, 0, [&] {
    pass(kMicrosecond);
    call("cuStreamSynchronize", 7 * kMicrosecond);
  });
  EXPECT_EQ(calls(), (Calls{{"stream", 1}}));
  EXPECT_DOUBLE_EQ(seconds(record::SyncKind::stream), 8e-6) << "the outermost call's time";
}

TEST_F(CallCounterTest, EveryKindThatWaitsCountsHoweverShort) {
  call("cudaDeviceSynchronize_v3020", 0);
  call("cudaThreadSynchronize_v3020", 0);
  call("cudaStreamSynchronize_ptsz_v7000", 0);
  call("cudaEventSynchronize_v3020", 0);
  call("cuEventSynchronize", 0);
  const CopyParams copy{.kind = kHostToDevice};
  call("cudaMemcpy_v3020", 0, &copy);
  call("cuMemcpyDtoH_v2", 0);
  EXPECT_EQ(calls(), (Calls{{"device", 2}, {"stream", 1}, {"event", 2}, {"memcpy", 2}}));
}

TEST_F(CallCounterTest, ACopyWithinTheDeviceIsNoSync) {
  const CopyParams copy{.kind = kDeviceToDevice};
  call("cudaMemcpy_v3020", 10 * kMicrosecond, &copy);
  call("cudaMemcpyAsync_v3020", 10 * kMicrosecond, &copy);
  call("cuMemcpyDtoD_v2", 10 * kMicrosecond);
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(CallCounterTest, TheDriversCopyWithinACopyOnTheDeviceIsNoWait) {
  const CopyParams copy{.kind = kDeviceToDevice};
  cupti_.call("cudaMemcpy_v3020", &copy, 0, [&] { call("cuMemcpyDtoD_v2", kMicrosecond); });
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(CallCounterTest, WhatOnlyMayWaitCountsFromTheThresholdOn) {
  call("cudaFree_v3020", 49 * kMicrosecond);
  call("cudaMalloc_v3020", 49 * kMicrosecond);
  call("cuLibraryLoadData", 49 * kMicrosecond);
  EXPECT_THAT(calls(), IsEmpty());
  call("cudaFree_v3020", 50 * kMicrosecond);
  call("cudaHostAlloc_v3020", 80 * kMicrosecond);
  call("cuMemUnmap", 80 * kMicrosecond);
  call("cuModuleLoadData", 80 * kMicrosecond);
  EXPECT_EQ(calls(), (Calls{{"alloc_free", 3}, {"module_load", 1}}));
}

TEST_F(CallCounterTest, AnAsynchronousCopyThatBlockedIsASuspect) {
  const CopyParams copy{.kind = kHostToDevice, .stream = this};
  call("cudaMemcpyAsync_v3020", 49 * kMicrosecond, &copy);
  call("cudaMemcpyAsync_v3020", 900 * kMicrosecond, &copy);
  call("cudaEventQuery_v3020", 0);  // a copy is told by the thread's next call
  EXPECT_EQ(calls(), (Calls{{"async_copy_blocked", 1}}));
  EXPECT_DOUBLE_EQ(seconds(record::SyncKind::async_copy_blocked), 900e-6);
}

TEST_F(CallCounterTest, AnAsynchronousCopyWithAWaitInsideIsConfirmedHoweverShort) {
  const CopyParams copy{.kind = kHostToDevice, .stream = this};
  cupti_.call("cudaMemcpyAsync_v3020", &copy, 0,
              [&] { call("cuStreamSynchronize", kMicrosecond); });
  call("cudaEventQuery_v3020", 0);
  EXPECT_EQ(calls(), (Calls{{"async_copy_blocked", 1}}));
}

TEST_F(CallCounterTest, ACopyToTheHostAndTheWaitForItAreOneRead) {
  const CopyParams copy{.kind = kDeviceToHost, .stream = this};
  const StreamParams stream{this};
  call("cudaMemcpyAsync_v3020", 4 * kMicrosecond, &copy);
  call("cudaStreamSynchronize_v3020", 20 * kMicrosecond, &stream);
  EXPECT_EQ(calls(), (Calls{{"d2h_read", 1}}));
  EXPECT_DOUBLE_EQ(seconds(record::SyncKind::d2h_read), 24e-6);
}

TEST_F(CallCounterTest, ACopyToTheDeviceAndTheWaitForItAreOneBlockingCopy) {
  const CopyParams copy{.kind = kHostToDevice, .stream = this};
  const StreamParams stream{this};
  call("cudaMemcpyAsync_v3020", 400 * kMicrosecond, &copy);
  call("cudaStreamSynchronize_v3020", 2 * kMicrosecond, &stream);
  EXPECT_EQ(calls(), (Calls{{"memcpy", 1}}));
}

TEST_F(CallCounterTest, AWaitForAnotherStreamIsNoneForTheCopy) {
  const CopyParams copy{.kind = kDeviceToHost, .stream = this};
  const StreamParams other{&cupti_};
  call("cudaMemcpyAsync_v3020", 4 * kMicrosecond, &copy);
  call("cudaStreamSynchronize_v3020", 20 * kMicrosecond, &other);
  EXPECT_EQ(calls(), (Calls{{"stream", 1}}));
}

TEST_F(CallCounterTest, AnotherCallBetweenCopyAndWaitParts) {
  const CopyParams copy{.kind = kDeviceToHost, .stream = this};
  const StreamParams stream{this};
  call("cudaMemcpyAsync_v3020", 70 * kMicrosecond, &copy);
  call("cudaEventSynchronize_v3020", kMicrosecond);
  call("cudaStreamSynchronize_v3020", 20 * kMicrosecond, &stream);
  EXPECT_EQ(calls(), (Calls{{"async_copy_blocked", 1}, {"event", 1}, {"stream", 1}}));
}

TEST_F(CallCounterTest, AWaitFromAnotherPlaceIsNoneForTheCopy) {
  const CopyParams copy{.kind = kDeviceToHost, .stream = this};
  const StreamParams stream{this};
  (void)ledger_->set_scope("prefetch");
  call("cudaMemcpyAsync_v3020", 4 * kMicrosecond, &copy);
  (void)ledger_->set_scope("end of step");
  call("cudaStreamSynchronize_v3020", 20 * kMicrosecond, &stream);
  (void)ledger_->set_scope(nullptr);
  EXPECT_EQ(calls(), (Calls{{"stream", 1}}));
}

TEST_F(CallCounterTest, PollsAreCountedApart) {
  for (int i = 0; i < 1000; ++i) call("cudaEventQuery_v3020", kMicrosecond, nullptr, 600);
  call("cuStreamQuery", kMicrosecond);
  EXPECT_THAT(calls(), IsEmpty());
  const auto summary = ledger_->summary();
  EXPECT_EQ(summary.polls[0].calls, 1001);
  EXPECT_NEAR(summary.polls[0].seconds, 1001e-6, 1e-12);
  EXPECT_THAT(summary.sites, IsEmpty());
}

TEST_F(CallCounterTest, WhatACaptureRefusesDidNotWait) {
  for (int error = 900; error <= 908; ++error)
    call("cudaStreamSynchronize_v3020", kMicrosecond, nullptr, error);
  call("cudaMalloc_v3020", kMicrosecond, nullptr, 900);
  EXPECT_EQ(calls(), (Calls{{"rejected_in_capture", 10}}));
}

TEST_F(CallCounterTest, AWaitThatEndsInADeviceFaultCounts) {
  call("cudaStreamSynchronize_v3020", 9 * kMicrosecond, nullptr, 700);
  EXPECT_EQ(calls(), (Calls{{"stream", 1}}));
}

TEST_F(CallCounterTest, AnEndWithoutABeginningIsDiscardedAndSaid) {
  std::uint64_t correlation = 0;
  cupti_.exit("cudaStreamSynchronize_v3020", nullptr, correlation);
  EXPECT_THAT(calls(), IsEmpty());
  EXPECT_EQ(dropped(SyncDrop::unbalanced), 1);
}

TEST_F(CallCounterTest, AnEndWithAnotherCallsTokenIsDiscardedAndSaid) {
  std::uint64_t mine = 0;
  std::uint64_t other = 12345;
  cupti_.enter("cudaStreamSynchronize_v3020", nullptr, mine);
  cupti_.exit("cudaStreamSynchronize_v3020", nullptr, other);
  EXPECT_THAT(calls(), IsEmpty());
  EXPECT_EQ(dropped(SyncDrop::unbalanced), 1);
  call("cudaStreamSynchronize_v3020", kMicrosecond);
  EXPECT_EQ(calls(), (Calls{{"stream", 1}})) << "the next call counts again";
}

TEST_F(CallCounterTest, ABeginningWithoutAnEndDoesNotSwallowWhatFollows) {
  std::uint64_t correlation = 0;
  cupti_.enter("cudaStreamSynchronize_v3020", nullptr, correlation);
  call("cudaStreamSynchronize_v3020", kMicrosecond);
  EXPECT_EQ(calls(), (Calls{{"stream", 1}}));
  EXPECT_EQ(dropped(SyncDrop::unbalanced), 1);
}

TEST_F(CallCounterTest, ASubscriptionThatBeginsWithinACallLosesOnlyThatCall) {
  ledger_->leave();
  std::uint64_t correlation = 0;
  cupti_.enter("cudaDeviceSynchronize_v3020", nullptr, correlation);
  ledger_->join({});
  cupti_.exit("cudaDeviceSynchronize_v3020", nullptr, correlation);
  call("cudaDeviceSynchronize_v3020", kMicrosecond);
  EXPECT_EQ(calls(), (Calls{{"device", 1}}));
  EXPECT_EQ(dropped(SyncDrop::unbalanced), 1);
}

TEST_F(CallCounterTest, OurOwnCallsAreBookedApart) {
  ledger_->own(1);
  call("cudaEventSynchronize_v3020", 2 * kMicrosecond);
  call("cudaEventQuery_v3020", 0);
  ledger_->own(-1);
  call("cudaEventSynchronize_v3020", 2 * kMicrosecond);
  const auto summary = ledger_->summary();
  EXPECT_EQ(calls_of(summary), (Calls{{"event", 1}}));
  EXPECT_EQ(calls_of(summary, SyncOrigin::gradvane), (Calls{{"event", 1}}));
  EXPECT_EQ(summary.polls[1].calls, 1);
}

TEST_F(CallCounterTest, OwnCallsOfOneThreadAreNotThoseOfAnother) {
  ledger_->own(1);
  std::thread([&] { call("cudaEventSynchronize_v3020", 0); }).join();
  ledger_->own(-1);
  EXPECT_EQ(calls(), (Calls{{"event", 1}}));
}

TEST_F(CallCounterTest, TimeIsBookedOnThePhaseInWhichTheCallBegan) {
  using record::Phase;
  (void)ledger_->end_step();  // phases are those of steps
  ledger_->set_phase(static_cast<std::uint8_t>(Phase::forward));
  cupti_.call("cudaDeviceSynchronize_v3020", nullptr, 0, [&] {
    pass(4 * kMicrosecond);
    ledger_->set_phase(static_cast<std::uint8_t>(Phase::backward));
  });
  call("cudaDeviceSynchronize_v3020", 5 * kMicrosecond);
  ledger_->set_phase(kNoPhase);
  call("cudaDeviceSynchronize_v3020", 6 * kMicrosecond);
  (void)ledger_->end_step();
  const auto summary = ledger_->summary();
  EXPECT_DOUBLE_EQ(summary.by_phase[index_of(Phase::forward)].seconds, 4e-6);
  EXPECT_DOUBLE_EQ(summary.by_phase[index_of(Phase::backward)].seconds, 5e-6);
  EXPECT_EQ(summary.by_phase[index_of(Phase::optimizer)].calls, 0);
  ASSERT_EQ(summary.sites.size(), 3U);
  EXPECT_EQ(summary.sites[0].phase, std::nullopt);
}

TEST_F(CallCounterTest, AScopeNamesThePlace) {
  const char* before = ledger_->set_scope("loss_log");
  EXPECT_EQ(before, nullptr);
  call("cudaStreamSynchronize_v3020", 5 * kMicrosecond);
  call("cudaStreamSynchronize_v3020", 9 * kMicrosecond);
  EXPECT_STREQ(ledger_->set_scope(before), "loss_log");
  const auto summary = ledger_->summary();
  ASSERT_EQ(summary.sites.size(), 1U);
  EXPECT_EQ(summary.sites[0].location, "loss_log");
  EXPECT_EQ(summary.sites[0].total.calls, 2);
  EXPECT_DOUBLE_EQ(summary.sites[0].total.seconds, 14e-6);
  EXPECT_DOUBLE_EQ(summary.sites[0].max_seconds, 9e-6);
}

TEST_F(CallCounterTest, APlaceKeepsItsIdAndTheCostliestComesFirst) {
  (void)ledger_->set_scope("cheap");
  call("cudaStreamSynchronize_v3020", 5 * kMicrosecond);
  const auto id = ledger_->summary().sites.at(0).id;
  (void)ledger_->set_scope("dear");
  call("cudaStreamSynchronize_v3020", 50 * kMicrosecond);
  (void)ledger_->set_scope(nullptr);
  const auto sites = ledger_->summary().sites;
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_EQ(sites[0].location, "dear");
  EXPECT_EQ(sites[1].location, "cheap");
  EXPECT_EQ(sites[1].id, id);
}

TEST_F(CallCounterTest, WhereThereAreTooManyPlacesNoCallIsLost) {
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) names.push_back("scope " + std::to_string(i));
  for (const std::string& name : names) {
    (void)ledger_->set_scope(name.c_str());
    call("cudaStreamSynchronize_v3020", kMicrosecond);
  }
  (void)ledger_->set_scope(nullptr);
  const auto summary = ledger_->summary();
  EXPECT_EQ(calls_of(summary), (Calls{{"stream", 3000}}));
  std::int64_t in_sites = 0;
  std::int64_t in_other = 0;
  for (const auto& site : summary.sites) {
    in_sites += site.total.calls;
    if (site.location == record::kOtherLocation) in_other += site.total.calls;
  }
  EXPECT_EQ(in_sites, 3000);
  EXPECT_GT(in_other, 0);
  EXPECT_EQ(summary.dropped[index_of(SyncDrop::sites)], in_other);
}

}  // namespace
}  // namespace gradvane::collectors
