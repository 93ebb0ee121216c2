#include "detectors/rules/gradient_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::ParamState;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class GradientRulesTest : public test::FakeSteps {
 protected:
  GradientRulesTest() {
    model_.id = 1;
    model_.groups = {"embed", "layers.0", "layers.1", "head"};
    detail_.groups.resize(4);
    for (record::GroupStats& group : detail_.groups) {
      group.params = 2;
      group.grad_zero_ratio = 0.1;
    }
  }
  record::StepRecord step(int vanishing, int params = 8) {
    record::StepRecord step = next();
    step.grad_norm = 1;
    step.params[index_of(ParamState::finite)] = params;
    step.vanishing = vanishing;
    return step;
  }
  void observe(const record::StepRecord& step) {
    if (!rules_) rules_.emplace(0, settings_, 0, book_, collect());
    rules_->observe(step, detail_, model_);
  }
  void observe_many(int vanishing, int times) {
    for (int i = 0; i < times; ++i) observe(step(vanishing));
  }
  void observe_health(double health, int times) {
    for (int i = 0; i < times; ++i) {
      record::StepRecord one = step(0);
      one.grad_health = health;
      observe(one);
    }
  }
  void set_zero(std::size_t group, bool is_zero) {
    detail_.groups[group].grad_zero_ratio = is_zero ? 1.0 : 0.1;
  }

  GradientSettings settings_;
  record::ModelInfo model_;
  record::StepDetail detail_;

 private:
  std::optional<GradientRules> rules_;
};

TEST_F(GradientRulesTest, HalfOfTheParametersForTenStepsVanish) {
  observe_many(4, GradientRules::kVanishingInARow - 1);
  EXPECT_THAT(reports_, IsEmpty());
  observe_many(4, 1);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::grad_vanishing);
  EXPECT_EQ(reports_[0].first_step, 1);
  EXPECT_EQ(reports_[0].evidence,
            "Step 10: 4 of 8 parameters (50 %) have next to no gradient, for 10 steps in a row.");
  observe_many(3, GradientRules::kCloseAfter);
  EXPECT_THAT(reports_, SizeIs(2));
}

TEST_F(GradientRulesTest, FewerAreNone) {
  observe_many(3, 1000);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(GradientRulesTest, ParametersWithoutAGradientAreNotPartOfTheShare) {
  for (int i = 0; i < 100; ++i) {
    record::StepRecord one = step(3, 7);
    one.params[index_of(ParamState::missing)] = 3;
    one.params[index_of(ParamState::frozen)] = 100;
    observe(one);
  }
  EXPECT_THAT(reports_, IsEmpty()) << "3 of 7";
  for (int i = 0; i < 10; ++i) {
    record::StepRecord one = step(3, 3);
    one.params[index_of(ParamState::frozen)] = 100;
    observe(one);
  }
  EXPECT_THAT(reports_, SizeIs(1)) << "3 of 3";
}

TEST_F(GradientRulesTest, AStepWithoutAnyGradientSaysNothing) {
  for (int i = 0; i < 100; ++i) observe(next());
  for (int i = 0; i < 100; ++i) observe(step(0, 0));
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(GradientRulesTest, StepsWithNonFiniteGradientsAreLeftOut) {
  judge(IncidentClass::grad_health, true);
  for (int i = 0; i < 100; ++i) {
    record::StepRecord one = step(8);
    one.grad_health = 0;
    one.nonfinite[index_of(record::Site::grad)] = {0, 1, 0};
    observe(one);
  }
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(GradientRulesTest, HealthOpensBelowOneHalfAndClosesAtSevenTenths) {
  judge(IncidentClass::grad_health, true);
  observe_health(0.5, 100);
  EXPECT_THAT(reports_, IsEmpty());
  observe_health(0.49, GradientRules::kSickInARow);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::grad_health);
  EXPECT_THAT(reports_[0].evidence, HasSubstr("the health of the gradients is 0.49"));
  observe_health(0.69, 100);
  EXPECT_THAT(reports_, SizeIs(1)) << "neither sick nor well";
  observe_health(0.7, GradientRules::kCloseAfter);
  EXPECT_THAT(reports_, SizeIs(2));
}

TEST_F(GradientRulesTest, HealthIsNotJudgedUnlessAskedFor) {
  observe_health(0, 100);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(GradientRulesTest, AGroupWhoseGradientsAreAllZeroForLongIsDead) {
  set_zero(2, true);
  observe_many(0, settings_.dead_after - 1);
  EXPECT_THAT(reports_, IsEmpty());
  observe_many(0, 1);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::dead_group);
  EXPECT_EQ(reports_[0].group, "layers.1");
  EXPECT_EQ(reports_[0].first_step, 1);
  EXPECT_EQ(reports_[0].evidence,
            "Step 50: every gradient has been zero for 50 steps in layers.1, and not elsewhere.");
  set_zero(2, false);
  observe_many(0, GradientRules::kCloseAfter);
  EXPECT_THAT(reports_, SizeIs(2));
}

TEST_F(GradientRulesTest, OneStepWithAGradientBeginsTheCountAnew) {
  for (int i = 0; i < 20; ++i) {
    set_zero(1, true);
    observe_many(0, settings_.dead_after - 1);
    set_zero(1, false);
    observe_many(0, 1);
  }
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(GradientRulesTest, SeveralDeadGroupsAreOneIncident) {
  settings_.dead_after = 3;
  for (const std::size_t group : {0U, 1U, 2U}) set_zero(group, true);
  observe_many(0, 10);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].group, "embed");
  EXPECT_THAT(reports_[0].evidence, HasSubstr("in embed, layers.0, layers.1, and not elsewhere"));
}

TEST_F(GradientRulesTest, WhereEverythingIsZeroNoSingleGroupIsToBlame) {
  for (std::size_t group = 0; group < 4; ++group) set_zero(group, true);
  observe_many(0, 500);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(GradientRulesTest, AGroupThatGotNoGradientsIsNotDead) {
  detail_.groups[1].params = 0;
  detail_.groups[1].grad_zero_ratio.reset();
  observe_many(0, 500);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(GradientRulesTest, AnotherModelBeginsTheCountAnewAndStepsWithoutDetailAreNoHarm) {
  settings_.dead_after = 10;
  set_zero(3, true);
  observe_many(0, 9);
  model_.id = 2;
  observe_many(0, 9);
  EXPECT_THAT(reports_, IsEmpty());
  detail_.groups.clear();
  observe_many(0, 20);
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace gradvane::detectors
