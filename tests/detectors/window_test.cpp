#include "detectors/window.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradvane::detectors {
namespace {

TEST(Window, OfNothingEverythingIsZero) {
  const Window window(4);
  EXPECT_EQ(window.size(), 0U);
  EXPECT_EQ(window.mean(), 0);
  EXPECT_EQ(window.deviation(), 0);
  EXPECT_EQ(window.median(), 0);
}

TEST(Window, KeepsTheLastOnes) {
  Window window(3);
  for (const double value : {100.0, -50.0, 1.0, 2.0, 6.0}) window.add(value);
  EXPECT_TRUE(window.is_full());
  EXPECT_DOUBLE_EQ(window.mean(), 3);
  EXPECT_DOUBLE_EQ(window.median(), 2);
  // ((1-3)^2 + (2-3)^2 + (6-3)^2) / 3 = 14 / 3, of the population
  EXPECT_DOUBLE_EQ(window.deviation(), std::sqrt(14.0 / 3));
}

TEST(Window, TheMedianOfAnEvenNumberLiesBetweenTheMiddleTwo) {
  Window window(8);
  for (const double value : {9.0, 1.0, 4.0, 2.0}) window.add(value);
  EXPECT_DOUBLE_EQ(window.median(), 3);
}

TEST(Window, EqualValuesDeviateByNothing) {
  Window window(5);
  for (int i = 0; i < 5; ++i) window.add(0.1);
  EXPECT_NEAR(window.deviation(), 0, 1e-17);
}

TEST(Window, TheEndsOfTheRangeStayFinite) {
  const double huge = std::numeric_limits<double>::max();
  Window window(4);
  for (const double value : {huge, huge, huge, huge}) window.add(value);
  EXPECT_TRUE(std::isfinite(window.mean()));
  EXPECT_TRUE(std::isfinite(window.median()));
  EXPECT_TRUE(std::isfinite(window.deviation()));
  window.add(1e-300);
  EXPECT_TRUE(std::isfinite(window.deviation()));
  Window tiny(2);
  tiny.add(2e-300);
  tiny.add(4e-300);
  EXPECT_DOUBLE_EQ(tiny.deviation(), 1e-300) << "their squares are below the smallest number";
}

TEST(Window, ForgetsWhenItIsCleared) {
  Window window(2);
  for (const double value : {1.0, 2.0, 3.0}) window.add(value);
  window.clear();
  window.add(7);
  EXPECT_EQ(window.size(), 1U);
  EXPECT_DOUBLE_EQ(window.mean(), 7);
}

}  // namespace
}  // namespace gradvane::detectors
