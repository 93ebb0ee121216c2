#include "detectors/rules/agent_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class AgentRulesTest : public test::FakeSteps {
 protected:
  void observe(const record::StepRecord& step) {
    if (!rules_) rules_.emplace(0, settings_, 0, book_, collect());
    rules_->observe(step);
  }
  void observe_cost(double agent, double whole, int times = AgentRules::kStretch) {
    for (int i = 0; i < times; ++i) {
      record::StepRecord step = next();
      step.agent_seconds = agent;
      step.step_seconds = whole;
      observe(step);
    }
  }
  void observe_dropped(std::int64_t dropped) {
    record::StepRecord step = next();
    step.dropped_before = dropped;
    observe(step);
  }

  AgentSettings settings_;

 private:
  std::optional<AgentRules> rules_;
};

TEST_F(AgentRulesTest, LostRecordsAreAnIncidentUntilAHundredStepsCameThrough) {
  observe_dropped(0);
  observe_dropped(3);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::data_dropped);
  EXPECT_THAT(reports_[0].evidence, HasSubstr("Before step 2: 3 records were lost"));
  for (int i = 0; i < AgentRules::kKeptSteps - 1; ++i) observe_dropped(0);
  observe_dropped(1);
  for (int i = 0; i < AgentRules::kKeptSteps - 1; ++i) observe_dropped(0);
  EXPECT_THAT(reports_, SizeIs(1));
  observe_dropped(0);
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[1].steps, 2);
}

TEST_F(AgentRulesTest, HooksThatTakeMoreThanTheirShareAreOne) {
  observe_cost(0.0001, 0.1);
  observe_cost(0.006, 0.1, 2 * AgentRules::kStretch - 1);
  EXPECT_THAT(reports_, IsEmpty());
  observe_cost(0.006, 0.1, 1);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::agent_cost);
  EXPECT_EQ(
      reports_[0].evidence,
      "Up to step 300: Gradvane's hooks took 6 % of the time of 100 steps, the dearest left out "
      "(6 ms a step), more than the 5 % it may, and of the 100 before.");
}

TEST_F(AgentRulesTest, TheFirstStretchSetsEverythingUpAndIsNotJudged) {
  observe_cost(1, 1);
  observe_cost(0.001, 1, 1000);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(AgentRulesTest, OneSlowStepOfOursIsNoStretch) {
  observe_cost(0.001, 0.1);
  for (int i = 0; i < 10; ++i) {
    observe_cost(0.3, 0.4, 1);
    observe_cost(0.001, 0.1, AgentRules::kStretch - 1);
  }
  EXPECT_THAT(reports_, IsEmpty()) << "0.4 of 10.3 seconds";
}

// What a machine does that has other things to do: a hook stands still for long, now and then.
TEST_F(AgentRulesTest, AHookWithoutACoreIsNotTheAgentsCost) {
  observe_cost(0.0001, 0.001);
  for (int i = 0; i < 10; ++i) {
    observe_cost(0.2, 0.2, 1);  // once in a stretch, whatever it takes
    observe_cost(0.0001, 0.001, AgentRules::kStretch - 1);
  }
  for (int i = 0; i < 10; ++i) {  // more often in one stretch, but not in the next
    observe_cost(0.2, 0.2, 5);
    observe_cost(0.0001, 0.001, 2 * AgentRules::kStretch - 5);
  }
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(AgentRulesTest, WhatIsDearEveryTenthStepIsNotLeftOut) {
  observe_cost(0.0001, 0.01);
  for (int i = 0; i < 20; ++i) {
    observe_cost(0.02, 0.03, 1);
    observe_cost(0.0001, 0.01, 9);
  }
  EXPECT_THAT(reports_, SizeIs(1));
}

TEST_F(AgentRulesTest, StepsAsShortAsOurCallsSayNothing) {
  observe_cost(0.00045, 0.0009, 1000);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(AgentRulesTest, ItClearsWellBelowTheBudget) {
  observe_cost(0, 0.1);
  observe_cost(0.006, 0.1, 2 * AgentRules::kStretch);
  observe_cost(0.0045, 0.1);
  EXPECT_THAT(reports_, SizeIs(1)) << "4.5 % is neither";
  observe_cost(0.0039, 0.1);
  EXPECT_THAT(reports_, SizeIs(2));
}

TEST_F(AgentRulesTest, StepsWithoutATimeAreLeftOut) {
  for (int i = 0; i < 1000; ++i) {
    record::StepRecord step = next();
    step.agent_seconds = 5;
    observe(step);
  }
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(AgentRulesTest, EachClassCanBeSwitchedOff) {
  judge(IncidentClass::agent_cost, false);
  judge(IncidentClass::data_dropped, false);
  observe_cost(0.5, 1, 1000);
  observe_dropped(5);
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace gradvane::detectors
