// The guard that counts the agent's own time in a step. The tests rest on two facts: a sleep lasts
// at least as long as it is asked to, and a time that lies within another is not longer.
#include "agent/step/own_time.hpp"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "collectors/model/libtorch_source.hpp"
#include "tests/agent/training.hpp"

namespace gradvane::agent {
namespace {

constexpr std::chrono::milliseconds kWhile(20);

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

class OwnTimeOfAStep : public testing::Test {
 protected:
  OwnTimeOfAStep() {
    (void)recorder_.attach(
        collectors::libtorch_source(*training_.model, training_.optimizer.get()));
  }

  /// Ends the step, and returns what it counts as the agent's own time.
  double finish() {
    (void)recorder_.finish(0);
    collectors::StepFacts facts;
    EXPECT_TRUE(recorder_.handoff().next(facts).found);
    return facts.agent_seconds;
  }

  test::Training training_;
  Governor governor_{test::quiet()};
  StepRecorder recorder_{test::quiet(), true, governor_};
};

TEST_F(OwnTimeOfAStep, IsNothingWithoutAGuard) { EXPECT_EQ(finish(), 0); }

TEST_F(OwnTimeOfAStep, CountsFromBeginToEnd) {
  const Clock::time_point before = Clock::now();
  {
    const OwnTime own(recorder_);
    std::this_thread::sleep_for(kWhile);
  }
  const double around = seconds(Clock::now() - before);
  const double counted = finish();
  EXPECT_GE(counted, seconds(kWhile));
  EXPECT_LE(counted, around);
}

TEST_F(OwnTimeOfAStep, CountsUpToTheStopAndOnce) {
  const Clock::time_point before = Clock::now();
  std::optional<Clock::time_point> stopped;
  double around = 0;
  {
    OwnTime own(recorder_);
    EXPECT_GE(own.began(), before);
    stopped = own.stop();
    around = seconds(Clock::now() - before);
    std::this_thread::sleep_for(kWhile);
  }
  EXPECT_GE(seconds(Clock::now() - *stopped), seconds(kWhile));
  EXPECT_LE(finish(), around);
}

TEST_F(OwnTimeOfAStep, AddsUp) {
  for (int turn = 0; turn < 3; ++turn) {
    const OwnTime own(recorder_);
    std::this_thread::sleep_for(kWhile);
  }
  EXPECT_GE(finish(), 3 * seconds(kWhile));
}

TEST_F(OwnTimeOfAStep, BelongsToOneStepOnly) {
  {
    const OwnTime own(recorder_);
    std::this_thread::sleep_for(kWhile);
  }
  EXPECT_GT(finish(), 0);
  EXPECT_EQ(finish(), 0);
}

}  // namespace
}  // namespace gradvane::agent
