#include "exporters/history/point_axis.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace gradvane::exporters {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

void take(PointAxis& axis, std::int64_t from, std::int64_t to, std::int64_t by = 1) {
  for (std::int64_t step = from; step <= to; step += by)
    (void)axis.take(step, static_cast<double>(step));
}

std::vector<std::pair<std::int64_t, std::int64_t>> ranges(const PointAxis& axis) {
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (const Point& point : axis.points()) result.emplace_back(point.first, point.last);
  return result;
}

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST(PointAxis, GivesEachStepAPointWhileThereIsRoom) {
  PointAxis axis(4);
  take(axis, 1, 4);
  EXPECT_EQ(ranges(axis), (Ranges{{1, 1}, {2, 2}, {3, 3}, {4, 4}}));
  EXPECT_EQ(axis.steps_per_point(), 1);
}

TEST(PointAxis, MakesOneOfTwoWhenThereIsNoRoom) {
  PointAxis axis(4);
  take(axis, 1, 4);
  EXPECT_THAT(axis.take(5, 5.0), ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(ranges(axis), (Ranges{{1, 2}, {3, 4}, {5, 5}}));
  EXPECT_EQ(axis.steps_per_point(), 2);
  EXPECT_THAT(axis.take(6, 6.0), IsEmpty());
  EXPECT_EQ(ranges(axis).back(), (std::pair<std::int64_t, std::int64_t>{5, 6}));
  EXPECT_EQ(axis.points().back().time, 6.0);
}

TEST(PointAxis, CoversARunOfAMillionStepsWithoutAHole) {
  PointAxis axis(100);
  take(axis, 1, 1'000'000);
  EXPECT_LE(axis.points().size(), 100U);
  EXPECT_GT(axis.points().size(), 50U);
  EXPECT_EQ(axis.points().front().first, 1);
  EXPECT_EQ(axis.points().back().last, 1'000'000);
  for (std::size_t i = 1; i < axis.points().size(); ++i)
    ASSERT_EQ(axis.points()[i].first, axis.points()[i - 1].last + 1);
}

TEST(PointAxis, FollowsARunThatWasResumedFarOn) {
  PointAxis axis(4);
  take(axis, 1, 3);
  take(axis, 1'000'000, 1'000'003);
  EXPECT_LE(axis.points().size(), 4U);
  EXPECT_EQ(axis.points().front().first, 1);
  EXPECT_EQ(axis.points().back().last, 1'000'003);
}

TEST(PointAxis, PutsAStepOfThePastIntoTheLastPoint) {
  PointAxis axis(4);
  take(axis, 10, 12);
  EXPECT_THAT(axis.take(1, 99.0), IsEmpty());
  EXPECT_EQ(ranges(axis), (Ranges{{10, 10}, {11, 11}, {12, 12}}));
}

TEST(PointAxis, SendsTheGrowingPointAgain) {
  PointAxis axis(4);
  take(axis, 1, 7);
  const std::int64_t next = axis.next();
  EXPECT_EQ(axis.first_after(next), axis.points().size() - 1);
  (void)axis.take(8, 8.0);
  EXPECT_EQ(axis.first_after(next), axis.points().size() - 1);
  EXPECT_EQ(axis.first_after(0), 0U);
  EXPECT_EQ(axis.first_after(std::numeric_limits<std::int64_t>::max()), axis.points().size());
}

TEST(PointAxis, TakesLessRoomWithTheNextStepWhereItIsToldTo) {
  PointAxis axis(64);
  take(axis, 1, 60);
  axis.set_most(8);
  (void)axis.take(61, 61.0);
  EXPECT_LE(axis.points().size(), 8U);
  EXPECT_EQ(axis.points().front().first, 1);
  EXPECT_EQ(axis.points().back().last, 61);
}

TEST(PointAxis, StepsAtTheEndsOfTheNumbersAreTakenInAndJoined) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::size_t most : {std::size_t{2}, std::size_t{5}}) {
    PointAxis axis(most);
    for (const std::int64_t step : {kLeast, kLeast + 1, std::int64_t{-5}, std::int64_t{0},
                                    std::int64_t{1}, kMost / 2, kMost - 1, kMost, kLeast})
      (void)axis.take(step, 0);
    EXPECT_LE(axis.points().size(), most);
    EXPECT_EQ(axis.points().back().last, kMost);
    EXPECT_LE(axis.next(), axis.points().back().first);
  }
}

}  // namespace
}  // namespace gradvane::exporters
