#include "detectors/stall.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class StallTest : public test::FakeSteps {
 protected:
  void step(double at) { stall_.step({++step_, wall_ + at, at}); }
  void tick(double at, double paused = 0) { stall_.tick({0, wall_ + at, at}, paused); }

  double wall_ = 1000;
  StallDetector stall_{0, 30, book_, collect()};
};

TEST_F(StallTest, OpensOnceWhenNoStepHasEndedForLongAndClosesWithTheNext) {
  step(0);
  for (int second = 1; second <= 30; ++second) tick(second);
  EXPECT_THAT(reports_, IsEmpty());
  for (int second = 31; second < 500; ++second) tick(second);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, record::IncidentClass::stalled);
  EXPECT_EQ(reports_[0].first_step, 1);
  EXPECT_EQ(reports_[0].opened_at, 1031);
  EXPECT_EQ(reports_[0].evidence, "No step has ended for 31 seconds, since step 1.");
  step(500);
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[1].closed_at, 1500);
}

TEST_F(StallTest, ARunWithLongStepsGetsTwentyOfThem) {
  double now = 0;
  for (int i = 0; i < 10; ++i, now += 10) stall_.step({++step_, wall_ + now, now}, 10.0);
  stall_.step({++step_, wall_ + now, now}, 3000.0);  // one of them had an evaluation in it
  stall_.step({++step_, wall_ + now, now}, std::nan(""));
  tick(now + 200);
  EXPECT_THAT(reports_, IsEmpty());
  tick(now + 201);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].evidence, "No step has ended for 201 seconds, since step 12.");
}

TEST_F(StallTest, AFewLongStepsAtTheBeginningShowNothing) {
  for (int i = 0; i < 7; ++i) stall_.step({++step_, wall_, 0}, 3600.0);
  tick(31);
  EXPECT_THAT(reports_, SizeIs(1));
}

TEST_F(StallTest, ARunThatHasNotBegunIsNotStalled) {
  for (int second = 0; second < 1000; ++second) tick(second);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(StallTest, AWallClockThatJumpsStallsNothing) {
  step(0);
  wall_ += 86'400;
  tick(5);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(StallTest, EachStallIsAnIncidentOfItsOwn) {
  for (int i = 0; i < 3; ++i) {
    step(100 * i);
    tick(100 * i + 31);
  }
  step(300);
  ASSERT_THAT(reports_, SizeIs(6));
  EXPECT_EQ(reports_[5].id, 3);
}

TEST_F(StallTest, EvaluationsAndCheckpointsDoNotCount) {
  step(0);
  tick(500, 470);
  EXPECT_THAT(reports_, IsEmpty());
  tick(501, 470);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].evidence,
            "No step has ended for 501 seconds, since step 1. Of these, 470 seconds of evaluations "
            "and checkpoints do not count.");
}

TEST_F(StallTest, ZeroSecondsMeansNever) {
  StallDetector never(0, 0, book_, collect());
  never.step({1, 0, 0});
  never.tick({0, 1e9, 1e9});
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace gradvane::detectors
