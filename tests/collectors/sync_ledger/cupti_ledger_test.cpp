// The subscription and its troubles.
#include "collectors/sync_ledger/cupti_ledger.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <thread>

#include "tests/collectors/sync_ledger/counting_ledger.hpp"

namespace gradvane::collectors {
namespace {

using record::StepSyncs;
using record::SyncReason;
using record::SyncSource;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kSync = "cudaStreamSynchronize_v3020";

class CuptiLedgerTest : public LedgerTest {
 protected:
  CuptiLedgerTest() { ::unsetenv("KINETO_USE_DAEMON"); }
  ~CuptiLedgerTest() override { ::unsetenv("KINETO_USE_DAEMON"); }
  /// The worker looks, and the thread that trains comes by.
  void look_and_step() {
    ledger->look(false);
    (void)ledger->end_step();
  }
};

TEST_F(CuptiLedgerTest, NobodyCountsBeforeAnybodyAsks) {
  call(kSync, kMicrosecond);
  const auto summary = ledger->summary();
  EXPECT_EQ(summary.source, SyncSource::off);
  EXPECT_EQ(summary.reason, SyncReason::switched_off);
  EXPECT_FALSE(cupti.is_subscribed());
}

TEST_F(CuptiLedgerTest, OnlyTheCallsOfTheTableAreEnabled) {
  ledger->join({});
  EXPECT_EQ(ledger->summary().source, SyncSource::cupti);
  EXPECT_EQ(cupti.enabled(), std::ssize(cuda_calls()) + 1) << "and CUPTI's own last word";
  EXPECT_STREQ(cupti.last_params().name, "Gradvane");
}

TEST_F(CuptiLedgerTest, TheLastToLeaveGivesTheSubscriptionBack) {
  ledger->join({});
  ledger->join({});
  ledger->leave();
  EXPECT_TRUE(cupti.is_subscribed());
  ledger->leave();
  EXPECT_FALSE(cupti.is_subscribed());
  EXPECT_EQ(ledger->summary().source, SyncSource::off);
}

TEST_F(CuptiLedgerTest, WithoutADriverInTheProcessNothingIsLoadedAndTheReasonSaysSo) {
  fake_driver = false;
  ledger->join({});
  look_and_step();
  EXPECT_FALSE(cupti.is_subscribed());
  EXPECT_EQ(ledger->summary().source, SyncSource::none);
  EXPECT_EQ(ledger->summary().reason, SyncReason::no_cuda);
}

TEST_F(CuptiLedgerTest, ADriverThatComesLaterIsFollowedByTheTrainingThread) {
  fake_driver = false;
  ledger->join({});
  fake_driver = true;
  ledger->look(false);
  EXPECT_FALSE(cupti.is_subscribed()) << "the worker itself asks for nothing";
  (void)ledger->end_step();
  EXPECT_TRUE(cupti.is_subscribed());
  EXPECT_EQ(ledger->summary().reason, SyncReason::counting);
}

TEST_F(CuptiLedgerTest, WhereNoThreadTakesStepsTheLookItselfSubscribes) {
  fake_driver = false;
  ledger->join({});
  fake_driver = true;
  ledger->look(true);
  EXPECT_TRUE(cupti.is_subscribed());
}

TEST_F(CuptiLedgerTest, WithoutALibraryTheReasonSaysSo) {
  fake_library = false;
  ledger->join({});
  EXPECT_EQ(ledger->summary().reason, SyncReason::no_cupti);
  EXPECT_THAT(ledger->summary().detail, HasSubstr("libcupti.so"));
}

TEST_F(CuptiLedgerTest, ALibraryWithoutADriverIsNoDriver) {
  fake_driver = false;
  cupti.refuse(999);
  ledger->join({.at_once = true});
  EXPECT_EQ(ledger->summary().reason, SyncReason::no_driver);
  EXPECT_THAT(ledger->summary().detail, HasSubstr("999"));
}

TEST_F(CuptiLedgerTest, ADriverThatRefusesIsSaidWithItsWord) {
  cupti.refuse(41);
  ledger->join({});
  EXPECT_EQ(ledger->summary().reason, SyncReason::refused);
  EXPECT_THAT(ledger->summary().detail, HasSubstr("CONFIDENTIAL_COMPUTING"));
}

TEST_F(CuptiLedgerTest, WhereAnotherToolHasItItsOwnerIsNamedAndWeAskAgainLater) {
  cupti.take_by("Nsight Systems");
  ledger->join({});
  EXPECT_EQ(ledger->summary().source, SyncSource::none);
  EXPECT_EQ(ledger->summary().reason, SyncReason::taken);
  EXPECT_EQ(ledger->summary().detail, "by Nsight Systems");
  cupti.take_by("");
  pass(59 * kSecond);
  look_and_step();
  EXPECT_FALSE(cupti.is_subscribed());
  pass(2 * kSecond);
  look_and_step();
  EXPECT_EQ(ledger->summary().source, SyncSource::cupti);
}

TEST_F(CuptiLedgerTest, TimeThatNobodyCountedIsSaid) {
  cupti.take_by("Nsight Systems");
  ledger->join({});
  pass(61 * kSecond);
  cupti.take_by("");
  look_and_step();
  pass(5 * kSecond);
  const auto summary = ledger->summary();
  EXPECT_DOUBLE_EQ(summary.blind_seconds, 61);
  EXPECT_DOUBLE_EQ(summary.covered_seconds, 5);
}

TEST_F(CuptiLedgerTest, AForeignFinalizeIsNoticedMarkedAndSurvived) {
  ledger->join({});
  call(kSync, kMicrosecond);
  const SyncMark before = ledger->end_step();
  cupti.finalize();
  call(kSync, kMicrosecond);  // nobody sees it
  look_and_step();
  EXPECT_EQ(ledger->summary().reason, SyncReason::lost);
  EXPECT_EQ(ledger->summary().gaps, 1);
  pass(6 * kSecond);
  look_and_step();
  EXPECT_EQ(ledger->summary().source, SyncSource::cupti);
  call(kSync, kMicrosecond);
  EXPECT_EQ(calls_of(ledger->summary()), (Calls{{"stream", 2}}));
  StepSyncs syncs;
  EXPECT_FALSE(ledger->step(before, ledger->end_step(), syncs)) << "a gap lies in between";
}

TEST_F(CuptiLedgerTest, CuptisOwnEndIsNoticed) {
  ledger->join({});
  cupti.announce_fatal_error();
  ledger->look(false);
  EXPECT_EQ(ledger->summary().reason, SyncReason::lost);
}

TEST_F(CuptiLedgerTest, TheProfilerIsToldBeforehandWhereItWouldAsk) {
  ledger->join({.needs_gate = true});
  EXPECT_EQ(ledger->summary().reason, SyncReason::gated);
  ASSERT_NE(::getenv("KINETO_USE_DAEMON"), nullptr);
}

TEST_F(CuptiLedgerTest, TheEnvironmentIsLeftAloneWhereThereIsNothingToGate) {
  ledger->join({});
  EXPECT_EQ(::getenv("KINETO_USE_DAEMON"), nullptr);
  ledger->leave();
  fake_driver = false;
  ledger->join({.needs_gate = true});
  EXPECT_EQ(::getenv("KINETO_USE_DAEMON"), nullptr) << "no CUDA, nothing to subscribe to";
}

TEST_F(CuptiLedgerTest, AProfilerThatComesBeforeTheDriverIsToldToo) {
  fake_driver = false;
  ledger->join({.needs_gate = true});
  ledger->profiler_begins();
  EXPECT_NE(::getenv("KINETO_USE_DAEMON"), nullptr);
}

TEST_F(CuptiLedgerTest, OnAMachineWithoutADriverTheProfilerIsLeftAlone) {
  fake_driver = fake_machine = false;
  ledger->join({.needs_gate = true});
  ledger->profiler_begins();
  EXPECT_EQ(::getenv("KINETO_USE_DAEMON"), nullptr);
}

TEST_F(CuptiLedgerTest, AGateOfTheUsersOwnIsKept) {
  ::setenv("KINETO_USE_DAEMON", "user", 1);
  ledger->join({.needs_gate = true});
  EXPECT_STREQ(::getenv("KINETO_USE_DAEMON"), "user");
}

TEST_F(CuptiLedgerTest, UnderTheYieldRuleTheProfilerGetsTheSubscriptionWhileItRuns) {
  ledger->join({.profiler = ProfilerRule::yield, .needs_gate = true});
  EXPECT_EQ(::getenv("KINETO_USE_DAEMON"), nullptr);
  ledger->profiler_begins();
  EXPECT_FALSE(cupti.is_subscribed());
  EXPECT_EQ(ledger->summary().reason, SyncReason::yielded);
  pass(120 * kSecond);
  look_and_step();
  EXPECT_FALSE(cupti.is_subscribed()) << "not before the profiler is done";
  ledger->profiler_ended();
  EXPECT_TRUE(cupti.is_subscribed());
  EXPECT_EQ(ledger->summary().gaps, 1);
}

TEST_F(CuptiLedgerTest, WhereCuptiIsTooOldToShareTheProfilerIsTold) {
  ledger->join({.profiler = ProfilerRule::share, .needs_gate = true});
  EXPECT_EQ(cupti.last_params().allow_multiple, 0);
  EXPECT_EQ(ledger->summary().reason, SyncReason::gated);
}

TEST_F(CuptiLedgerTest, ADriverThatComesWhileWeSubscribeIsNotWaitedFor) {
  // To subscribe may set the driver up, and that calls the injected library, on the same thread.
  cupti.on_subscribe([&] { ledger->driver_comes(); });
  ledger->join({.at_once = true});
  EXPECT_TRUE(cupti.is_subscribed());
  EXPECT_EQ(cupti.subscriptions(), 1);
}

TEST_F(CuptiLedgerTest, ADriverThatComesOnAnotherThreadWhileWeSubscribeIsNotWaitedFor) {
  cupti.on_subscribe([&] { std::thread([&] { ledger->driver_comes(); }).join(); });
  ledger->join({.at_once = true});
  EXPECT_TRUE(cupti.is_subscribed());
}

TEST_F(CuptiLedgerTest, TheDriverBringsTheSubscription) {
  fake_driver = false;
  ledger->join({});
  EXPECT_FALSE(cupti.is_subscribed());
  ledger->driver_comes();
  EXPECT_TRUE(cupti.is_subscribed());
}

TEST_F(CuptiLedgerTest, UnderOtherRulesAProfilerChangesNothing) {
  ledger->join({.needs_gate = true});
  ledger->profiler_begins();
  EXPECT_TRUE(cupti.is_subscribed());
}

TEST_F(CuptiLedgerTest, ACallbackAfterTheEndDoesNothing) {
  ledger->join({});
  std::uint64_t correlation = 0;
  cupti.enter(kSync, nullptr, correlation);
  ledger->leave();
  cupti.exit(kSync, nullptr, correlation);
  call(kSync, kMicrosecond);
  EXPECT_THAT(calls_of(ledger->summary()), IsEmpty());
}

}  // namespace
}  // namespace gradvane::collectors
