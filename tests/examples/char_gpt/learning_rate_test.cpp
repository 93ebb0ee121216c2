#include "examples/char_gpt/training/learning_rate.hpp"

#include <gtest/gtest.h>

namespace char_gpt {
namespace {

TEST(LearningRate, RisesToItsPeakThenFallsToATenth) {
  EXPECT_DOUBLE_EQ(learning_rate(1, 1000, 2.0), 0.02);
  EXPECT_DOUBLE_EQ(learning_rate(100, 1000, 2.0), 2.0);
  for (std::int64_t step = 101; step <= 1000; ++step) {
    EXPECT_LT(learning_rate(step, 1000, 2.0), learning_rate(step - 1, 1000, 2.0)) << step;
  }
  EXPECT_NEAR(learning_rate(1000, 1000, 2.0), 0.2, 1e-12);
}

TEST(LearningRate, IsPositiveInTheShortestRuns) {
  for (std::int64_t steps = 1; steps <= 12; ++steps) {
    for (std::int64_t step = 1; step <= steps; ++step) {
      EXPECT_GT(learning_rate(step, steps, 1.0), 0.0) << step << " of " << steps;
      EXPECT_LE(learning_rate(step, steps, 1.0), 1.0) << step << " of " << steps;
    }
  }
}

}  // namespace
}  // namespace char_gpt
