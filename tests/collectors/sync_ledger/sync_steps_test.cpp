// What a step had of the syncs of all threads, and what becomes of threads and processes.
#include <gmock/gmock.h>
#include <pthread.h>
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

using SyncStepsTest = LedgerTest;

// Steps ---------------------------------------------------------------------------------------------------

TEST_F(SyncStepsTest, AStepHasTheSyncsThatBeganInIt) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  call(kSync, 2 * kMicrosecond);
  call("cudaDeviceSynchronize_v3020", 3 * kMicrosecond);
  call("cudaEventQuery_v3020", 0);
  const SyncMark first = ledger_->end_step();
  const SyncMark second = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, first, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 2);
  EXPECT_DOUBLE_EQ(syncs.seconds[0], 5e-6);
  EXPECT_EQ(syncs.polls, 1);
  ASSERT_TRUE(ledger_->step(first, second, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 0);
  EXPECT_EQ(syncs.polls, 0);
  EXPECT_EQ(ledger_->summary().steps, 3);
}

TEST_F(SyncStepsTest, ASyncThatLastsBeyondItsStepBelongsToWhereItBegan) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  SyncMark first;
  cupti_.call(kSync, nullptr, 0, [&] { first = ledger_->end_step(); });
  const SyncMark second = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, first, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 1);
  ASSERT_TRUE(ledger_->step(first, second, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 0);
}

TEST_F(SyncStepsTest, AStepKnowsItsPlacesByTheirCalls) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  (void)ledger_->set_scope("nan check");
  for (int i = 0; i < 3; ++i) call(kSync, kMicrosecond);
  (void)ledger_->set_scope("log");
  call(kSync, kSecond);
  (void)ledger_->set_scope(nullptr);
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, end, syncs));
  const auto sites = ledger_->sites_of_step(start, end, SyncOrigin::training);
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_EQ(sites[0].location, "nan check");
  EXPECT_EQ(sites[0].calls, 3);
  EXPECT_EQ(sites[1].location, "log");
}

TEST_F(SyncStepsTest, RejectedCallsAreNoSyncsOfAStep) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  call(kSync, kMicrosecond, nullptr, 900);
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 0);
  EXPECT_EQ(syncs.calls[0][index_of(record::SyncKind::rejected_in_capture)], 1);
  EXPECT_EQ(syncs.seconds[0], 0);
}

TEST_F(SyncStepsTest, AStepWithMoreSyncsThanTheReaderCouldTakeIsNotKnownButNoSyncIsLost) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  constexpr int kMany = ThreadTable::kEvents + 100;
  for (int i = 0; i < kMany; ++i) call(kSync, kMicrosecond);
  const SyncMark first = ledger_->end_step();
  StepSyncs syncs;
  EXPECT_FALSE(ledger_->step(start, first, syncs));
  EXPECT_EQ(calls_of(ledger_->summary()), (Calls{{"stream", kMany}}));
  EXPECT_EQ(dropped(SyncDrop::events), 100);
  call(kSync, kMicrosecond);
  const SyncMark second = ledger_->end_step();
  (void)ledger_->step(first, second, syncs);
  call(kSync, kMicrosecond);
  const SyncMark third = ledger_->end_step();
  ASSERT_TRUE(ledger_->step(second, third, syncs)) << "later steps are known again";
  EXPECT_EQ(syncs.count(SyncOrigin::training), 1);
}

TEST_F(SyncStepsTest, AReaderThatComesByOftenKeepsStepsOfAnyLengthKnown) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  constexpr int kMany = 3 * ThreadTable::kEvents;
  for (int i = 0; i < kMany; ++i) {
    call(kSync, kMicrosecond);
    if (i % 1000 == 0) ledger_->collect();
  }
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), kMany);
}

TEST_F(SyncStepsTest, WhereNobodyTakesStepsNoneOfTheirDetailIsMissing) {
  ledger_->join({});
  for (int i = 0; i < 2 * static_cast<int>(ThreadTable::kEvents); ++i) call(kSync, kMicrosecond);
  EXPECT_EQ(dropped(SyncDrop::events), 0);
}

TEST_F(SyncStepsTest, StepsTakenWhileNobodyCountedAreNotZeroButUnknown) {
  fake_driver = false;
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  const SyncMark end = ledger_->end_step();
  StepSyncs syncs;
  EXPECT_FALSE(ledger_->step(start, end, syncs));
  EXPECT_EQ(ledger_->summary().steps, 0);
}

// Threads and processes -----------------------------------------------------------------------------------

TEST_F(SyncStepsTest, SixtyFourThreadsAndAReaderLoseNothing) {
  ledger_->join({});
  constexpr int kThreads = 64;
  constexpr int kEach = 500;
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    StepSyncs syncs;
    SyncMark before = ledger_->end_step();
    while (!is_over) {
      const SyncMark now = ledger_->end_step();
      (void)ledger_->step(before, now, syncs);
      (void)ledger_->summary();
      before = now;
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (t % 2 == 0) ledger_->own(1);
      for (int i = 0; i < kEach; ++i) {
        cupti_.call(kSync, nullptr, 0, [&] { cupti_.call("cuStreamSynchronize"); });
        cupti_.call("cudaEventQuery_v3020");
      }
      if (t % 2 == 0) ledger_->own(-1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  reader.join();
  const auto summary = ledger_->summary();
  EXPECT_EQ(calls_of(summary), (Calls{{"stream", kThreads / 2 * kEach}}));
  EXPECT_EQ(calls_of(summary, SyncOrigin::gradvane), (Calls{{"stream", kThreads / 2 * kEach}}));
  EXPECT_EQ(summary.polls[0].calls + summary.polls[1].calls, kThreads * kEach);
}

TEST_F(SyncStepsTest, ReadsOfManyThreadsBesideAReaderAreCountedOnce) {
  ledger_->join({});
  constexpr int kThreads = 16;
  constexpr int kEach = 200;
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    while (!is_over) (void)ledger_->summary();
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      (void)ledger_->set_scope("read");
      const CopyParams copy{.kind = 2};
      const StreamParams stream;
      for (int i = 0; i < kEach; ++i) {
        call("cudaMemcpyAsync_v3020", 60 * kMicrosecond, &copy);  // it blocked, and a wait follows
        call(kSync, kMicrosecond, &stream);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  reader.join();
  EXPECT_EQ(calls_of(ledger_->summary()), (Calls{{"d2h_read", kThreads * kEach}}));
}

TEST_F(SyncStepsTest, ThreadsThatCameAndWentKeepTheirCountsAndGiveTheirTablesBack) {
  ledger_->join({});
  constexpr int kMany = 2 * TablePool::kTables;
  for (int i = 0; i < kMany; ++i) {
    std::thread([&] { call(kSync, kMicrosecond); }).join();
    if (i % 100 == 99) (void)ledger_->summary();
  }
  const auto summary = ledger_->summary();
  EXPECT_EQ(calls_of(summary), (Calls{{"stream", kMany}}));
  EXPECT_EQ(summary.dropped[index_of(SyncDrop::threads)], 0);
}

TEST_F(SyncStepsTest, PollsOfThreadsThatAreGoneStayInTheirStep) {
  ledger_->join({});
  const SyncMark start = ledger_->end_step();
  std::vector<std::thread> threads;
  for (int i = 0; i < 300; ++i)  // so many at once that tables are taken back
    threads.emplace_back([&] {
      (void)::pthread_setname_np(::pthread_self(), "pt_autograd_0");
      call("cudaEventQuery_v3020", 0);
    });
  for (std::thread& thread : threads) thread.join();
  const SyncMark first = ledger_->end_step();
  (void)ledger_->summary();
  const SyncMark second = ledger_->end_step();
  StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(start, first, syncs));
  EXPECT_EQ(syncs.polls, 300);
  ASSERT_TRUE(ledger_->step(first, second, syncs));
  EXPECT_EQ(syncs.polls, 0);
  EXPECT_EQ(ledger_->summary().polls[0].calls, 300);
}

TEST_F(SyncStepsTest, MoreThreadsAtOnceThanTablesAreSaid) {
  ledger_->join({});
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
  const auto summary = ledger_->summary();
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls_of(summary), (Calls{{"stream", TablePool::kTables}}));
  EXPECT_GE(summary.dropped[index_of(SyncDrop::threads)], 20);
}

TEST_F(SyncStepsTest, InAForkedChildNothingIsCountedOrCalled) {
  ledger_->join({});
  call(kSync, kMicrosecond);
  const int subscriptions = cupti_.subscriptions();
  const pid_t child = ::fork();
  if (child == 0) {
    ledger_->in_forked_child();
    call(kSync, kMicrosecond);
    ledger_->look(false);
    (void)ledger_->end_step();
    ledger_->profiler_begins("a profiler");
    ledger_->leave();
    const bool is_quiet = calls_of(ledger_->summary()).empty() &&
                          cupti_.subscriptions() == subscriptions && cupti_.is_subscribed();
    ::_exit(is_quiet ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  call(kSync, kMicrosecond);
  EXPECT_EQ(calls_of(ledger_->summary()), (Calls{{"stream", 2}})) << "the parent goes on";
}

}  // namespace
}  // namespace gradvane::collectors
