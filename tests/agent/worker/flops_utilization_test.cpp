#include "agent/worker/flops_utilization.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gradvane::agent {
namespace {

using testing::DoubleNear;
using testing::Optional;

record::StepRecord step(std::optional<double> tokens, std::optional<double> seconds) {
  record::StepRecord record;
  record.tokens = tokens;
  record.step_seconds = seconds;
  return record;
}

TEST(FlopsUtilization, IsTheShareOfThePeakFromTheFirstStepOn) {
  // 7e9 parameters, 6 FLOP each; 4,096 tokens in half a second, on a device of 989 TFLOP/s.
  FlopsUtilization mfu(42e9, 989e12);
  for (int i = 0; i < 5; ++i)
    EXPECT_THAT(mfu.add(step(4096, 0.5)), Optional(DoubleNear(8192.0 * 42e9 / 989e12, 1e-12)));
}

TEST(FlopsUtilization, FollowsAChangeAsTheAverageOfTheStepTimeDoes) {
  FlopsUtilization mfu(1, 100);
  (void)mfu.add(step(100, 1));
  double value = 0;
  for (int i = 0; i < 10; ++i) value = mfu.add(step(100, 2)).value();
  const double seconds = 2 - std::pow(0.9, 10);  // the closed form of the average
  EXPECT_NEAR(value, 1 / seconds, 1e-12);
}

TEST(FlopsUtilization, AverageTokensOverAverageTimeAndNotTheMeanOfShares) {
  FlopsUtilization mfu(1, 1);
  (void)mfu.add(step(10, 1));
  EXPECT_THAT(mfu.add(step(1000, 10)), Optional(DoubleNear((9.0 + 100) / (0.9 + 1), 1e-12)));
}

TEST(FlopsUtilization, IsAbsentIfAnyOfTheFourIsNotKnown) {
  EXPECT_FALSE(FlopsUtilization(0, 1e12).add(step(10, 1)));
  EXPECT_FALSE(FlopsUtilization(1e9, 0).add(step(10, 1)));
  FlopsUtilization mfu(1e9, 1e12);
  EXPECT_FALSE(mfu.add(step(std::nullopt, 1)));
  EXPECT_FALSE(mfu.add(step(10, std::nullopt)));
  EXPECT_FALSE(mfu.add(step(10, 0)));
  EXPECT_THAT(mfu.add(step(10, 1)), Optional(DoubleNear(0.01, 1e-12)))
      << "what was not known is not counted";
}

TEST(FlopsUtilization, AStepWithoutTokensIsZeroWhereTheLoopCountsZero) {
  FlopsUtilization mfu(1e9, 1e12);
  EXPECT_THAT(mfu.add(step(0, 1)), Optional(0.0));
}

}  // namespace
}  // namespace gradvane::agent
