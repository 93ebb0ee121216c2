// The subscription and its troubles, steps, threads and forks.
#include "collectors/sync_ledger/cupti_ledger.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/collectors/sync_ledger/counting_ledger.hpp"

namespace gradvane::collectors {
namespace {

using record::StepSyncs;
using record::SyncDrop;
using record::SyncOrigin;
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

// Steps ---------------------------------------------------------------------------------------------------

TEST_F(CuptiLedgerTest, AStepHasTheSyncsThatBeganInIt) {
  ledger->join({});
  const SyncMark start = ledger->end_step();
  call(kSync, 2 * kMicrosecond);
  call("cudaDeviceSynchronize_v3020", 3 * kMicrosecond);
  call("cudaEventQuery_v3020", 0);
  const SyncMark first = ledger->end_step();
  const SyncMark second = ledger->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger->step(start, first, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 2);
  EXPECT_DOUBLE_EQ(syncs.seconds[0], 5e-6);
  EXPECT_EQ(syncs.polls, 1);
  ASSERT_TRUE(ledger->step(first, second, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 0);
  EXPECT_EQ(syncs.polls, 0);
  EXPECT_EQ(ledger->summary().steps, 3);
}

TEST_F(CuptiLedgerTest, ASyncThatLastsBeyondItsStepBelongsToWhereItBegan) {
  ledger->join({});
  const SyncMark start = ledger->end_step();
  SyncMark first;
  cupti.call(kSync, nullptr, 0, [&] { first = ledger->end_step(); });
  const SyncMark second = ledger->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger->step(start, first, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 1);
  ASSERT_TRUE(ledger->step(first, second, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 0);
}

TEST_F(CuptiLedgerTest, AStepKnowsItsPlacesByTheirCalls) {
  ledger->join({});
  const SyncMark start = ledger->end_step();
  (void)ledger->set_scope("nan check");
  for (int i = 0; i < 3; ++i) call(kSync, kMicrosecond);
  (void)ledger->set_scope("log");
  call(kSync, kSecond);
  (void)ledger->set_scope(nullptr);
  const SyncMark end = ledger->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger->step(start, end, syncs));
  const auto sites = ledger->sites_of_step(start, end, SyncOrigin::training);
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_EQ(sites[0].location, "nan check");
  EXPECT_EQ(sites[0].calls, 3);
  EXPECT_EQ(sites[1].location, "log");
}

TEST_F(CuptiLedgerTest, RejectedCallsAreNoSyncsOfAStep) {
  ledger->join({});
  const SyncMark start = ledger->end_step();
  call(kSync, kMicrosecond, nullptr, 900);
  const SyncMark end = ledger->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 0);
  EXPECT_EQ(syncs.calls[0][static_cast<std::size_t>(record::SyncKind::rejected_in_capture)], 1);
  EXPECT_EQ(syncs.seconds[0], 0);
}

TEST_F(CuptiLedgerTest, AStepWithMoreSyncsThanTheReaderCouldTakeIsNotKnownButNoSyncIsLost) {
  ledger->join({});
  const SyncMark start = ledger->end_step();
  constexpr int kMany = ThreadTable::kEvents + 100;
  for (int i = 0; i < kMany; ++i) call(kSync, kMicrosecond);
  const SyncMark first = ledger->end_step();
  StepSyncs syncs;
  EXPECT_FALSE(ledger->step(start, first, syncs));
  EXPECT_EQ(calls_of(ledger->summary()), (Calls{{"stream", kMany}}));
  EXPECT_EQ(dropped(SyncDrop::events), 100);
  call(kSync, kMicrosecond);
  const SyncMark second = ledger->end_step();
  (void)ledger->step(first, second, syncs);
  call(kSync, kMicrosecond);
  const SyncMark third = ledger->end_step();
  ASSERT_TRUE(ledger->step(second, third, syncs)) << "later steps are known again";
  EXPECT_EQ(syncs.count(SyncOrigin::training), 1);
}

TEST_F(CuptiLedgerTest, AReaderThatComesByOftenKeepsStepsOfAnyLengthKnown) {
  ledger->join({});
  const SyncMark start = ledger->end_step();
  constexpr int kMany = 3 * ThreadTable::kEvents;
  for (int i = 0; i < kMany; ++i) {
    call(kSync, kMicrosecond);
    if (i % 1000 == 0) ledger->collect();
  }
  const SyncMark end = ledger->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), kMany);
}

TEST_F(CuptiLedgerTest, WhereNobodyTakesStepsNoneOfTheirDetailIsMissing) {
  ledger->join({});
  for (int i = 0; i < 2 * static_cast<int>(ThreadTable::kEvents); ++i) call(kSync, kMicrosecond);
  EXPECT_EQ(dropped(SyncDrop::events), 0);
}

TEST_F(CuptiLedgerTest, StepsTakenWhileNobodyCountedAreNotZeroButUnknown) {
  fake_driver = false;
  ledger->join({});
  const SyncMark start = ledger->end_step();
  const SyncMark end = ledger->end_step();
  StepSyncs syncs;
  EXPECT_FALSE(ledger->step(start, end, syncs));
  EXPECT_EQ(ledger->summary().steps, 0);
}

// Threads and processes -----------------------------------------------------------------------------------

TEST_F(CuptiLedgerTest, SixtyFourThreadsAndAReaderLoseNothing) {
  ledger->join({});
  constexpr int kThreads = 64;
  constexpr int kEach = 500;
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    StepSyncs syncs;
    SyncMark before = ledger->end_step();
    while (!is_over) {
      const SyncMark now = ledger->end_step();
      (void)ledger->step(before, now, syncs);
      (void)ledger->summary();
      before = now;
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (t % 2 == 0) ledger->own(1);
      for (int i = 0; i < kEach; ++i) {
        cupti.call(kSync, nullptr, 0, [&] { cupti.call("cuStreamSynchronize"); });
        cupti.call("cudaEventQuery_v3020");
      }
      if (t % 2 == 0) ledger->own(-1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  reader.join();
  const auto summary = ledger->summary();
  EXPECT_EQ(calls_of(summary), (Calls{{"stream", kThreads / 2 * kEach}}));
  EXPECT_EQ(calls_of(summary, SyncOrigin::gradvane), (Calls{{"stream", kThreads / 2 * kEach}}));
  EXPECT_EQ(summary.polls[0].calls + summary.polls[1].calls, kThreads * kEach);
}

TEST_F(CuptiLedgerTest, ThreadsThatCameAndWentKeepTheirCountsAndGiveTheirTablesBack) {
  ledger->join({});
  constexpr int kMany = 2 * TablePool::kTables;
  for (int i = 0; i < kMany; ++i) {
    std::thread([&] { call(kSync, kMicrosecond); }).join();
    if (i % 100 == 99) (void)ledger->summary();
  }
  const auto summary = ledger->summary();
  EXPECT_EQ(calls_of(summary), (Calls{{"stream", kMany}}));
  EXPECT_EQ(summary.dropped[static_cast<std::size_t>(SyncDrop::threads)], 0);
}

TEST_F(CuptiLedgerTest, MoreThreadsAtOnceThanTablesAreSaid) {
  ledger->join({});
  constexpr int kMany = TablePool::kTables + 20;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kMany; ++i) {
    threads.emplace_back([&] {
      call(kSync, kMicrosecond);
      ++ready;
      while (!go) std::this_thread::yield();
    });
  }
  while (ready < kMany) std::this_thread::yield();
  const auto summary = ledger->summary();
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls_of(summary), (Calls{{"stream", TablePool::kTables}}));
  EXPECT_GE(summary.dropped[static_cast<std::size_t>(SyncDrop::threads)], 20);
}

TEST_F(CuptiLedgerTest, InAForkedChildNothingIsCountedOrCalled) {
  ledger->join({});
  call(kSync, kMicrosecond);
  const int subscriptions = cupti.subscriptions();
  const pid_t child = ::fork();
  if (child == 0) {
    ledger->in_forked_child();
    call(kSync, kMicrosecond);
    ledger->look(false);
    (void)ledger->end_step();
    ledger->profiler_begins();
    ledger->leave();
    const bool is_quiet = calls_of(ledger->summary()).empty() &&
                          cupti.subscriptions() == subscriptions && cupti.is_subscribed();
    ::_exit(is_quiet ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  call(kSync, kMicrosecond);
  EXPECT_EQ(calls_of(ledger->summary()), (Calls{{"stream", 2}})) << "the parent goes on";
}

}  // namespace
}  // namespace gradvane::collectors
