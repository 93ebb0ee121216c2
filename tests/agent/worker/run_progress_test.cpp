// What the worker and the threads that wait for it share.
#include "agent/worker/run_progress.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <stop_token>
#include <thread>

namespace gradvane::agent {
namespace {

using namespace std::chrono_literals;
using record::RunState;

TEST(RunProgress, TheFirstRequestToEndDecides) {
  RunProgress progress;
  EXPECT_FALSE(progress.await_request(0us));
  progress.request_end(RunState::failed, "out of memory", Linger::yes);
  progress.request_end(RunState::finished, "", Linger::no);
  const auto ending = progress.await_request(0us);
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->state, RunState::failed);
  EXPECT_EQ(ending->reason, "out of memory");
  EXPECT_EQ(ending->linger, Linger::yes);
  EXPECT_FALSE(ending->is_by_signal);
}

TEST(RunProgress, ARequestEndsTheWorkersPause) {
  RunProgress progress;
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    progress.request_end(RunState::finished, "", Linger::no);
  });
  EXPECT_TRUE(progress.await_request(1min));
}

/// Rounds that export up to `steps`, until it goes.
class Rounds {
 public:
  Rounds(RunProgress& progress, std::uint64_t steps)
      : thread_([&progress, steps](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            (void)progress.await_request(1ms);
            progress.note_exported(steps);
          }
        }) {}

 private:
  std::jthread thread_;
};

TEST(RunProgress, AFlushWaitsForItsStepAndNotForLaterOnes) {
  RunProgress progress;
  const Rounds worker(progress, 3);
  EXPECT_TRUE(progress.await_exported(3, 1min));
  EXPECT_FALSE(progress.await_exported(4, 10ms));
}

TEST(RunProgress, AFlushWaitsForAWholeRoundAlthoughItsStepHasBeenExported) {
  RunProgress progress;
  progress.note_exported(3);
  EXPECT_FALSE(progress.await_exported(3, 1ms)) << "no round has been made";
  (void)progress.await_request(0us);
  auto flush = std::async(std::launch::async, [&] { return progress.await_exported(3, 1min); });
  const auto began = RunProgress::Clock::now();
  (void)progress.await_request(1min);
  EXPECT_LT(RunProgress::Clock::now() - began, 50s) << "no pause while a flush waits";
  while (flush.wait_for(0s) != std::future_status::ready) (void)progress.await_request(1ms);
  EXPECT_TRUE(flush.get());
}

TEST(RunProgress, AFlushWaitsForNoRoundAfterTheLastOne) {
  RunProgress progress;
  progress.note_exported(3);
  progress.note_last_round();
  EXPECT_TRUE(progress.await_exported(3, 1min));
  EXPECT_FALSE(progress.await_exported(4, 1ms));
}

TEST(RunProgress, AFlushEndsWithTheRunAndReportsThatAStepIsMissing) {
  RunProgress progress;
  progress.note_exported(3);
  std::jthread worker([&] {
    std::this_thread::sleep_for(20ms);
    progress.note_end();
  });
  EXPECT_FALSE(progress.await_exported(4, 1min));
  EXPECT_TRUE(progress.await_exported(3, 0ms));
}

TEST(RunProgress, TheEndIsWaitedForWhileTheWorkerPostponesIt) {
  RunProgress progress;
  progress.request_end(RunState::finished, "", Linger::yes);
  std::jthread worker([&] {
    progress.postpone_end(RunProgress::Clock::now() + 1min);
    std::this_thread::sleep_for(100ms);
    progress.note_end();
  });
  EXPECT_TRUE(progress.await_end());
}

TEST(RunProgress, AnEndThatDoesNotComeInTimeIsNotWaitedForAnyLonger) {
  RunProgress progress;  // without a request there is no time at all
  EXPECT_FALSE(progress.await_end());
}

}  // namespace
}  // namespace gradvane::agent
