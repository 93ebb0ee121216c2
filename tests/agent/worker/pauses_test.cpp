#include "agent/worker/pauses.hpp"

#include <gtest/gtest.h>

namespace gradvane::agent {
namespace {

class PausesTest : public testing::Test {
 protected:
  static Pauses::Clock::time_point at(double second) {
    const std::chrono::duration<double> time(second);
    return Pauses::Clock::time_point(
        std::chrono::duration_cast<Pauses::Clock::duration>(time + std::chrono::hours(1)));
  }
  void begin(double second) { pauses_.change(1, at(second)); }
  void end(double second) { pauses_.change(-1, at(second)); }
  [[nodiscard]] double seconds(double second) const { return pauses_.seconds(at(second)); }

  Pauses pauses_{100};
};

TEST_F(PausesTest, APauseLastsFromItsBeginningToItsEnd) {
  EXPECT_EQ(seconds(5), 0);
  begin(10);
  EXPECT_EQ(seconds(10), 0);
  EXPECT_EQ(seconds(14), 4);
  end(20);
  EXPECT_EQ(seconds(20), 10);
  EXPECT_EQ(seconds(1000), 10);
}

TEST_F(PausesTest, SeveralAddUp) {
  for (const int start : {0, 20, 40}) {
    begin(start);
    end(start + 5);
  }
  EXPECT_EQ(seconds(50), 15);
}

TEST_F(PausesTest, PausesThatOverlapAreOne) {
  begin(0);
  begin(5);
  end(10);
  EXPECT_EQ(seconds(12), 12) << "the first one goes on";
  end(20);
  EXPECT_EQ(seconds(30), 20);
}

TEST_F(PausesTest, OneThatLastsTooLongCountsUpToTheLimit) {
  begin(0);
  EXPECT_EQ(seconds(99), 99);
  EXPECT_EQ(seconds(5000), 100);
  end(5000);
  EXPECT_EQ(seconds(6000), 100);
  begin(6000);
  EXPECT_EQ(seconds(6010), 110) << "the next one has a limit of its own";
}

TEST_F(PausesTest, AnEndWithoutABeginningChangesNothing) {
  end(5);
  EXPECT_EQ(seconds(10), 0);
  begin(10);
  EXPECT_EQ(seconds(11), 1);
}

TEST_F(PausesTest, ALimitOfNothingMeansThatNothingIsAPause) {
  Pauses none(0);
  none.change(1, at(0));
  EXPECT_EQ(none.seconds(at(50)), 0);
}

}  // namespace
}  // namespace gradvane::agent
