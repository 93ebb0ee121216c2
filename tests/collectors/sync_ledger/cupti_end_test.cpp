// The end of a subscription: by another tool, by CUPTI itself, by the end of the process.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/collectors/sync_ledger/counting_ledger.hpp"

namespace gradvane::collectors {
namespace {

using record::StepSyncs;
using record::SyncReason;
using record::SyncSource;

using CuptiEndTest = LedgerTest;

// Its end by others ----------------------------------------------------------------------------------------

TEST_F(CuptiEndTest, AForeignFinalizeIsNoticedMarkedAndSurvived) {
  ledger_->join({});
  call(kSync, kMicrosecond);
  const SyncMark before = ledger_->end_step();
  cupti_.finalize();
  call(kSync, kMicrosecond);  // nobody sees it
  const SyncMark after = ledger_->end_step();
  EXPECT_EQ(ledger_->summary().reason, SyncReason::lost);
  EXPECT_EQ(ledger_->summary().gaps, 1);
  EXPECT_EQ(calls_of(ledger_->summary()), (Calls{{"stream", 1}})) << "what was counted stays";
  StepSyncs syncs;
  EXPECT_FALSE(ledger_->step(before, after, syncs)) << "a gap lies in between";
}

TEST_F(CuptiEndTest, AHandleThatMayBeDeadIsNeverHandedToCupti) {
  ledger_->join({});
  (void)ledger_->end_step();
  cupti_.finalize();
  for (int i = 0; i < 5; ++i) {
    pass(kSecond);
    ledger_->look(i % 2 == 0);
    (void)ledger_->end_step();
    (void)ledger_->summary();
  }
  ledger_->profiler_begins(kProfiler);
  ledger_->profiler_ended();
  ledger_->leave();
  EXPECT_EQ(cupti_.dead_handles(), 0);
}

TEST_F(CuptiEndTest, NotEvenWhereWeLeaveBeforeAnybodyHasNoticed) {
  ledger_->join({});
  cupti_.finalize();
  ledger_->leave();
  ledger_->join({.profiler = ProfilerRule::yield});
  cupti_.finalize();
  ledger_->profiler_begins(kProfiler);
  EXPECT_EQ(cupti_.dead_handles(), 0);
}

TEST_F(CuptiEndTest, ACuptiThatWasEndedIsNotBegunAnew) {
  ledger_->join({});
  cupti_.finalize();
  for (int i = 0; i < 100; ++i) {
    pass(10 * kSecond);
    look_and_step();
  }
  ledger_->leave();
  ledger_->join({});
  EXPECT_EQ(cupti_.subscriptions(), 1);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::lost);
}

TEST_F(CuptiEndTest, AStepWithinAnUnseenLossIsUnknownAndNotZero) {
  ledger_->join({});
  const SyncMark before = ledger_->end_step();
  cupti_.finalize();
  call(kSync, kMicrosecond);
  const SyncMark after = ledger_->end_step();
  StepSyncs syncs;
  EXPECT_FALSE(ledger_->step(before, after, syncs)) << "although the worker has not looked yet";
}

TEST_F(CuptiEndTest, StepsBeforeALossStayKnown) {
  ledger_->join({});
  const SyncMark before = ledger_->end_step();
  call(kSync, kMicrosecond);
  const SyncMark after = ledger_->end_step();
  cupti_.finalize();
  look_and_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(before, after, syncs));
  EXPECT_EQ(syncs.count(record::SyncOrigin::training), 1);
}

TEST_F(CuptiEndTest, WhereNoThreadTakesStepsTheLookItselfNoticesALoss) {
  ledger_->join({});
  cupti_.finalize();
  ledger_->look(true);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::lost);
}

// A driver that is being set up may give no sign of life yet.
TEST_F(CuptiEndTest, WhereTheFirstSignOfLifeComesLateALossIsSeenFromThenOn) {
  cupti_.hide_signs(true);
  ledger_->join({});
  const SyncMark before = ledger_->end_step();
  call(kSync, kMicrosecond);
  const SyncMark after = ledger_->end_step();
  StepSyncs syncs;
  EXPECT_TRUE(ledger_->step(before, after, syncs)) << "it is counted meanwhile";
  EXPECT_EQ(ledger_->summary().detail, "an end of CUPTI by another tool could not be seen yet");
  pass(50 * kSecond);
  cupti_.hide_signs(false);
  (void)ledger_->end_step();
  EXPECT_EQ(ledger_->summary().detail, "");
  pass(50 * kSecond);
  look_and_step();
  EXPECT_EQ(ledger_->summary().source, SyncSource::cupti);
  cupti_.finalize();
  (void)ledger_->end_step();
  ledger_->leave();
  EXPECT_EQ(ledger_->summary().reason, SyncReason::switched_off);
  EXPECT_EQ(cupti_.dead_handles(), 0);
}

TEST_F(CuptiEndTest, ACuptiThatNeverGivesASignOfLifeIsGivenUpForGood) {
  for (const bool with_steps : {true, false}) {
    SCOPED_TRACE(with_steps);
    cupti_.reset();
    cupti_.hide_signs(true);
    ledger_ = immortal_ledger(fake_world());
    ledger_->join({});
    call(kSync, kMicrosecond);
    const auto look = [&] {
      if (with_steps) (void)ledger_->end_step();
      ledger_->look(!with_steps);
    };
    pass(59 * kSecond);
    look();
    EXPECT_TRUE(cupti_.is_subscribed());
    pass(2 * kSecond);
    look();
    EXPECT_FALSE(cupti_.is_subscribed());
    const auto summary = ledger_->summary();
    EXPECT_EQ(summary.reason, SyncReason::lost);
    EXPECT_EQ(summary.detail, "given up: its end by another tool could not be seen");
    EXPECT_EQ(calls_of(summary), (Calls{{"stream", 1}})) << "what was counted stays";
    // From here on another tool may end CUPTI, and nothing of ours is handed to it.
    cupti_.finalize();
    for (int i = 0; i < 20; ++i) {
      pass(30 * kSecond);
      look();
    }
    ledger_->profiler_begins(kProfiler);
    ledger_->profiler_ended();
    ledger_->leave();
    EXPECT_EQ(cupti_.dead_handles(), 0);
    EXPECT_EQ(cupti_.subscriptions(), 1);
  }
}

TEST_F(CuptiEndTest, CuptisOwnEndIsNoticed) {
  ledger_->join({});
  cupti_.announce_fatal_error();
  ledger_->look(false);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::lost);
  EXPECT_EQ(ledger_->summary().detail, "it met an error");
}

// Its end by ourselves -------------------------------------------------------------------------------------

TEST_F(CuptiEndTest, AtTheEndOfTheProcessNobodyIsSubscribedAndWhatWasCountedStays) {
  ledger_->join({});
  call(kSync, kMicrosecond);
  pass(kSecond);
  EXPECT_GT(fake_loads, 0) << "which is when the end of the process is asked for";
  ledger_->end();
  EXPECT_FALSE(cupti_.is_subscribed());
  call(kSync, kMicrosecond);
  pass(9 * kSecond);
  const auto summary = ledger_->summary();
  EXPECT_EQ(calls_of(summary), (Calls{{"stream", 1}}));
  EXPECT_EQ(summary.source, SyncSource::cupti) << "it counted to the end";
  EXPECT_DOUBLE_EQ(summary.covered_seconds, 1 + 1e-6);
  look_and_step();
  ledger_->profiler_begins(kProfiler);
  ledger_->profiler_ended();
  EXPECT_FALSE(cupti_.is_subscribed()) << "for good";
}

TEST_F(CuptiEndTest, AThreadThatHangsInCuptiDoesNotHoldUpTheEnd) {
  std::atomic<bool> may_go{false};
  std::atomic<bool> is_in{false};
  cupti_.on_subscribe([&] {
    is_in = true;
    while (!may_go) std::this_thread::yield();
  });
  std::thread other([&] { ledger_->join({}); });
  while (!is_in) std::this_thread::yield();
  ledger_->end();  // returns, or this test hangs
  may_go = true;
  other.join();
  cupti_.on_subscribe({});
}

}  // namespace
}  // namespace gradvane::collectors
