#include "detectors/rules/norm_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using test::kInfinity;
using test::kNan;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class NormRulesTest : public test::FakeSteps {
 protected:
  void observe(std::optional<double> norm, bool has_nan = false) {
    if (!rules_) rules_.emplace(0, settings_, 0, book_, collect());
    record::StepRecord step = next();
    step.grad_norm = norm;
    if (has_nan) step.nonfinite[index_of(record::Site::grad)] = {1, 0, 0};
    rules_->observe(step);
  }
  void observe_many(double norm, int times) {
    for (int i = 0; i < times; ++i) observe(norm);
  }
  [[nodiscard]] std::vector<IncidentClass> opened() const {
    std::vector<IncidentClass> kinds;
    for (const record::Incident& incident : reports_)
      if (!incident.closed_at) kinds.push_back(incident.kind);
    return kinds;
  }

  NormSettings settings_;

 private:
  std::optional<NormRules> rules_;
};

TEST_F(NormRulesTest, ThreeNormsInARowFarAboveTheMedianAreAnExplosion) {
  for (int i = 0; i < 30; ++i) observe(i % 3 == 0 ? 1.5 : 1.0);
  observe(11);
  observe(12);
  EXPECT_THAT(reports_, IsEmpty());
  observe(13);
  ASSERT_THAT(opened(), testing::ElementsAre(IncidentClass::grad_exploding));
  EXPECT_EQ(reports_[0].first_step, 31);
  EXPECT_EQ(
      reports_[0].evidence,
      "Step 33: the gradient norm is 13, 13 times the median of the 30 before (1), for 3 steps "
      "in a row.");
}

TEST_F(NormRulesTest, TenTimesTheMedianIsStillAllowed) {
  observe_many(1, 30);
  observe_many(10, 3);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(NormRulesTest, OneOrTwoHighNormsAreNone) {
  observe_many(1, 30);
  for (int i = 0; i < 50; ++i) {
    observe(1000);
    observe(1000);
    observe(1);
  }
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(NormRulesTest, NothingIsJudgedBeforeThereIsAHistory) {
  observe_many(1, NormRules::kMinHistory - 1);
  observe_many(1000, 1);
  observe_many(1, 1);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(NormRulesTest, AnInfiniteNormOfFiniteGradientsIsOneWhateverCameBefore) {
  observe_many(kInfinity, 3);
  ASSERT_THAT(opened(), testing::ElementsAre(IncidentClass::grad_exploding));
  EXPECT_THAT(reports_[0].evidence, HasSubstr("the gradient norm is inf, for 3 steps in a row."));
}

TEST_F(NormRulesTest, StepsWithNonFiniteGradientsAreLeftOut) {
  observe_many(1, 30);
  observe(50);
  for (int i = 0; i < 100; ++i) observe(1e9, true);
  observe(50);
  observe(kNan);
  observe(std::nullopt);
  EXPECT_THAT(reports_, IsEmpty());
  observe(50);
  EXPECT_THAT(opened(), SizeIs(1)) << "what was left out broke no row";
}

TEST_F(NormRulesTest, AnExplosionIsOneIncidentAndNoDrift) {
  observe_many(1, 300);
  observe_many(100, 900);
  EXPECT_THAT(opened(), testing::ElementsAre(IncidentClass::grad_exploding));
  observe_many(1, NormRules::kCloseAfter);
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[1].steps, 900);
}

TEST_F(NormRulesTest, AnotherLevelIsToldOnceAndThenTakenForGranted) {
  observe_many(1, 300);
  observe_many(100, NormRules::kSettleAfter + 500);
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_TRUE(reports_[1].closed_at);
}

TEST_F(NormRulesTest, AStepToAnotherLevelThatTheMeanCatchesUpWithIsNoDrift) {
  observe_many(1, 400);
  // The mean follows at 1 % a step: after 26 steps it is 2.38, and 7 is less than threefold.
  observe_many(7, 200);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(NormRulesTest, ADriftNeedsFiftyStepsInARow) {
  judge(IncidentClass::grad_exploding, false);
  settings_.factor = 1e9;
  settings_.drift = 0.5;
  observe_many(1, 400);
  observe_many(7, NormRules::kDriftInARow - 1);
  EXPECT_THAT(reports_, IsEmpty());
  observe(7);
  ASSERT_THAT(opened(), testing::ElementsAre(IncidentClass::grad_norm_drift));
  EXPECT_EQ(reports_[0].first_step, 401);
  // The mean before the fiftieth: 1 + 6 * (1 - 0.99^49) = 3.333
  EXPECT_THAT(reports_[0].evidence, HasSubstr("its running mean is 3.333"));
}

TEST_F(NormRulesTest, AFallIsNoDriftUnlessTheThresholdIsBelowOne) {
  observe_many(7, 400);
  observe_many(1e-9, 400);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(NormRulesTest, BelowOneAFallIsADriftToo) {
  settings_.drift = 0.4;
  observe_many(7, 400);
  // The mean after 49 steps: 1 + 6 * 0.99^49 = 4.67, of which 1 is 79 % away.
  observe_many(1, NormRules::kDriftInARow);
  EXPECT_THAT(opened(), testing::ElementsAre(IncidentClass::grad_norm_drift));
}

TEST_F(NormRulesTest, TheFirstNormBeginsTheMean) {
  settings_.drift = 0.5;
  observe_many(1e6, 1000);  // a mean begun at 0 would be 1 % of it for long
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(NormRulesTest, GradientsThatAreAllZeroDivideByNothing) {
  observe_many(0, 500);
  observe_many(1e-12, 100);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(NormRulesTest, EachClassCanBeSwitchedOff) {
  judge(IncidentClass::grad_exploding, false);
  judge(IncidentClass::grad_norm_drift, false);
  observe_many(1, 300);
  observe_many(500, 300);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(NormRulesTest, ANoisyNormThatFallsIsHealthy) {
  std::mt19937_64 random(11);
  std::lognormal_distribution<double> noise(0, 0.4);
  for (int i = 0; i < 20'000; ++i) observe((0.3 + 8 * std::exp(-i / 500.0)) * noise(random));
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace gradvane::detectors
