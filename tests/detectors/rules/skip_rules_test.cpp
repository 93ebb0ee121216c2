#include "detectors/rules/skip_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::SkipReason;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class SkipRulesTest : public test::FakeSteps {
 protected:
  void observe(SkipReason skipped, bool is_explained = false, bool persists = false) {
    if (!rules_) rules_.emplace(0, settings_, 0, book_, collect());
    record::StepRecord step = next();
    step.skipped = skipped;
    step.overflow_persists = persists;
    step.loss_scale = scale_;
    if (skipped == SkipReason::amp_overflow) scale_ /= 2;
    rules_->observe(step, is_explained);
  }
  void observe_many(SkipReason skipped, int times, bool is_explained = false) {
    for (int i = 0; i < times; ++i) observe(skipped, is_explained);
  }

  SkipSettings settings_;
  double scale_ = 65536;

 private:
  std::optional<SkipRules> rules_;
};

TEST_F(SkipRulesTest, EightOverflowsInARowAreAnIncidentWithTheScales) {
  observe_many(SkipReason::amp_overflow, 7);
  EXPECT_THAT(reports_, IsEmpty());
  observe(SkipReason::amp_overflow);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::amp_overflow);
  EXPECT_EQ(reports_[0].first_step, 1);
  EXPECT_EQ(reports_[0].steps, 8);
  EXPECT_EQ(
      reports_[0].evidence,
      "Step 8: the gradient scaler has skipped 8 steps in a row, at scales from 6.554e+04 down "
      "to 512.");
}

TEST_F(SkipRulesTest, ItHealsWithTheStepsThatAreTaken) {
  observe_many(SkipReason::amp_overflow, 10);
  observe_many(SkipReason::none, SkipRules::kCloseAfter - 1);
  EXPECT_THAT(reports_, SizeIs(1));
  observe(SkipReason::none);
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_TRUE(reports_[1].closed_at);
  EXPECT_EQ(reports_[1].steps, 10);
}

TEST_F(SkipRulesTest, AScaleThatIsTooHighAtFirstAndOneOverflowNowAndThenAreHealthy) {
  observe_many(SkipReason::amp_overflow, 7);
  for (int i = 0; i < 50; ++i) {
    observe_many(SkipReason::none, 200);
    observe(SkipReason::amp_overflow);
  }
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(SkipRulesTest, WhatNoScaleGetsOverIsLeftToTheNonFiniteDetector) {
  settings_.overflow_streak = 20;
  observe_many(SkipReason::amp_overflow, 16);
  for (int i = 0; i < 100; ++i) observe(SkipReason::amp_overflow, true, true);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(SkipRulesTest, HalfOfTheStepsSkippedHereAndThereIsAnIncident) {
  for (int i = 0; i < SkipRules::kWindow / 2; ++i) {
    EXPECT_THAT(reports_, IsEmpty()) << i;
    observe(SkipReason::none);
    observe(SkipReason::amp_overflow);
  }
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::skipped_steps);
  EXPECT_EQ(reports_[0].evidence,
            "Step 50: 25 of the last 50 steps changed nothing (amp_overflow).");
}

TEST_F(SkipRulesTest, ItClearsWhenATenthOrLessIsSkipped) {
  for (int i = 0; i < 50; ++i) {
    observe(SkipReason::none);
    observe(SkipReason::loop);
  }
  ASSERT_THAT(reports_, SizeIs(1));
  // 25 in the window, leaving at one in two: with 40 good ones 5 are left
  observe_many(SkipReason::none, 40);
  EXPECT_THAT(reports_, SizeIs(1));
  observe_many(SkipReason::none, SkipRules::kCloseAfter);
  EXPECT_THAT(reports_, SizeIs(2));
}

TEST_F(SkipRulesTest, SkipsThatAnotherIncidentExplainsDoNotCount) {
  observe_many(SkipReason::loop, 500, true);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(SkipRulesTest, AStreakOfOverflowIsToldOnce) {
  observe_many(SkipReason::amp_overflow, 200);
  EXPECT_THAT(reports_, SizeIs(1));
}

TEST_F(SkipRulesTest, EachClassCanBeSwitchedOff) {
  judge(IncidentClass::amp_overflow, false);
  judge(IncidentClass::skipped_steps, false);
  observe_many(SkipReason::amp_overflow, 200);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(SkipRulesTest, AStepThatIsSkippedForItsNormIsOneIncident) {
  settings_.norm_bound = 10;
  SkipRules rules(0, settings_, 0, book_, collect());
  const auto observe_norm = [&](SkipReason skipped, double norm, bool is_bad = false) {
    record::StepRecord step = next();
    step.skipped = skipped;
    step.grad_norm = norm;
    if (is_bad) step.nonfinite[index_of(record::Site::grad)][0] = 1;
    rules.observe(step, is_bad);
  };
  observe_norm(SkipReason::none, 9);
  observe_norm(SkipReason::governor, 9, true);  // for its NaN: another detector has it
  observe_norm(SkipReason::none, 1000);         // taken: the policy did not ask for it
  EXPECT_THAT(reports_, IsEmpty());
  observe_norm(SkipReason::governor, 12.5);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::grad_norm_bound);
  EXPECT_EQ(reports_[0].evidence,
            "Step 4: the gradient norm is 12.5, above skip_norm, which is 10. Gradvane skipped the "
            "step: it changed no weights.");
  observe_norm(SkipReason::governor, 30);
  for (int i = 0; i < 9; ++i) observe_norm(SkipReason::none, 1);
  ASSERT_THAT(reports_, SizeIs(1)) << "still the same one";
  observe_norm(SkipReason::none, 1);
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_TRUE(reports_[1].closed_at.has_value());
  EXPECT_EQ(reports_[1].steps, 2);
}

}  // namespace
}  // namespace gradvane::detectors
