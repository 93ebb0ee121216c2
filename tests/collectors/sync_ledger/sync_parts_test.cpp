// Which part of a run a call belongs to: its steps, what is before, between and beside them.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>

#include "tests/collectors/sync_ledger/counting_ledger.hpp"

namespace gradvane::collectors {
namespace {

using record::StepSyncs;
using record::SyncOrigin;
using record::SyncPart;

using SyncPartsTest = LedgerTest;

std::int64_t calls_in(const record::SyncSummary& summary, SyncPart part) {
  return summary.parts[static_cast<std::size_t>(part)].calls;
}

TEST_F(SyncPartsTest, WhatCameBeforeTheFirstStepEndedIsNoStepsAndApart) {
  ledger_->join({});
  for (int i = 0; i < 300; ++i) call(kSync, kMicrosecond);  // a model that is moved to the device
  (void)ledger_->end_step();
  for (int step = 0; step < 10; ++step) {
    call(kSync, kMicrosecond);
    (void)ledger_->end_step();
  }
  const auto summary = ledger_->summary();
  EXPECT_EQ(calls_in(summary, SyncPart::start_up), 300);
  EXPECT_EQ(calls_in(summary, SyncPart::in_steps), 10);
  EXPECT_EQ(summary.steps, 11);
  EXPECT_EQ(summary.whole_steps, 10) << "so that there was 1 a step";
}

TEST_F(SyncPartsTest, WhatCameAfterTheLastStepIsNoSteps) {
  ledger_->join({});
  (void)ledger_->end_step();
  call(kSync, kMicrosecond);
  (void)ledger_->end_step();
  for (int i = 0; i < 50; ++i)
    call(kSync, kMicrosecond);  // behind replays of a graph, which end no step
  const auto summary = ledger_->summary();
  EXPECT_EQ(calls_in(summary, SyncPart::in_steps), 1);
  EXPECT_EQ(calls_in(summary, SyncPart::between_steps), 50);
  ASSERT_EQ(summary.sites.size(), 1U);
  EXPECT_EQ(summary.sites[0].total.calls, 51);
  EXPECT_EQ(summary.sites[0].in_steps.calls, 1);
}

TEST_F(SyncPartsTest, WhatIsDoneOutsideOfStepsIsNoSteps) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  call(kSync, kMicrosecond);
  ledger_->outside_steps(1);
  for (int i = 0; i < 40; ++i) call(kSync, kMicrosecond);  // an evaluation
  ledger_->outside_steps(-1);
  call(kSync, kMicrosecond);
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 2);
  EXPECT_EQ(calls_in(ledger_->summary(), SyncPart::between_steps), 40);
}

TEST_F(SyncPartsTest, ThreadsThatDoNotTrainAreInNoStep) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  call(kSync, kMicrosecond);
  std::thread([&] {
    ledger_->set_phase(1);
    for (int i = 0; i < 7; ++i) call(kSync, kMicrosecond);  // as a thread that pins memory
    call("cudaEventQuery_v3020", 0);
    ledger_->set_phase(kNoPhase);
  }).join();
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 1);
  EXPECT_EQ(syncs.polls, 0);
  EXPECT_EQ(ledger_->sites_of_step(start, end, SyncOrigin::training).size(), 1U);
  const auto summary = ledger_->summary();
  EXPECT_EQ(calls_in(summary, SyncPart::other_threads), 7);
  EXPECT_EQ(summary.by_phase[1].calls, 0) << "it delays no phase";
}

TEST_F(SyncPartsTest, TheThreadsOfABackwardPassAreOfTheStep) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  std::thread([&] {
    (void)::pthread_setname_np(::pthread_self(), "pt_autograd_0");
    call(kSync, kMicrosecond);
  }).join();
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 1);
}

TEST_F(SyncPartsTest, OurOwnCallsAreOurOwnOnWhateverThread) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  std::thread([&] {
    const OwnCalls own(ledger_);
    call(kSync, kMicrosecond);
  }).join();
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::gradvane), 1);
}

TEST_F(SyncPartsTest, ACopyThatBlockedIsOfItsStepAlthoughItsThreadMakesNoCallAfterIt) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  std::atomic<bool> has_copied{false};
  std::atomic<bool> go{false};
  std::thread backward([&] {
    (void)::pthread_setname_np(::pthread_self(), "pt_autograd_0");
    const CopyParams copy{.kind = 1};
    call("cudaMemcpyAsync_v3020", 80 * kMicrosecond, &copy);
    has_copied = true;
    while (!go) std::this_thread::yield();
  });
  while (!has_copied) std::this_thread::yield();
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 1);
  EXPECT_EQ(calls_of(ledger_->summary()), Calls{}) << "a wait for it may come";
  pass(2 * kSecond);
  EXPECT_EQ(calls_of(ledger_->summary()), (Calls{{"async_copy_blocked", 1}}));
  go = true;
  backward.join();
}

TEST_F(SyncPartsTest, TheLastCopyOfAThreadThatIsGoneIsCountedOnce) {
  ledger_->join({});
  const CopyParams copy{.kind = 1};
  constexpr int kMany = TablePool::kTables;  // so that tables are taken back
  for (int i = 0; i < kMany; ++i) {
    std::thread([&] { call("cudaMemcpyAsync_v3020", 80 * kMicrosecond, &copy); }).join();
    if (i % 100 == 99) (void)ledger_->summary();
  }
  pass(2 * kSecond);
  EXPECT_EQ(calls_of(ledger_->summary()), (Calls{{"async_copy_blocked", kMany}}));
  EXPECT_EQ(calls_of(ledger_->summary()), (Calls{{"async_copy_blocked", kMany}}))
      << "and not again";
}

TEST_F(SyncPartsTest, AtTheEndACopyThatIsKeptCounts) {
  ledger_->join({});
  const CopyParams copy{.kind = 1};
  call("cudaMemcpyAsync_v3020", 80 * kMicrosecond, &copy);
  ledger_->end();
  EXPECT_EQ(calls_of(ledger_->summary()), (Calls{{"async_copy_blocked", 1}}));
}

TEST_F(SyncPartsTest, ASecondRunOfTheProcessStartsAnew) {
  ledger_->join({});
  (void)ledger_->end_step();
  ledger_->leave();
  ledger_->join({});
  for (int i = 0; i < 20; ++i) call(kSync, kMicrosecond);  // it sets itself up
  (void)ledger_->end_step();
  EXPECT_EQ(calls_in(ledger_->summary(), SyncPart::start_up), 20);
}

}  // namespace
}  // namespace gradvane::collectors
