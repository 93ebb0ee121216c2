#include "agent/worker/step_intake.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace gradvane::agent {
namespace {

using collectors::Handoff;
using collectors::LateValue;
using collectors::OpenStep;
using collectors::StepFacts;

StepFacts facts_of(std::int64_t step) {
  StepFacts facts;
  facts.step = facts.run_step = step;
  return facts;
}

class Intake : public testing::Test {
 protected:
  bool log(double value) {
    OpenStep::Addition addition(handoff_.newest());
    if (!addition) return false;
    addition.add({.of = LateValue::Of::metric, .metric = 0, .value = value});
    return true;
  }
  std::optional<StepIntake::Step> next(bool all = false) {
    intake_.collect();
    return intake_.next(all);
  }

  Handoff handoff_{4};
  StepIntake intake_{handoff_};
};

TEST_F(Intake, AStepWaitsUntilTheNextOneShowsItselfAndHasWhatWasLoggedBehindIt) {
  handoff_.publish_open(facts_of(1));
  EXPECT_FALSE(next());
  EXPECT_FALSE(intake_.empty());
  EXPECT_TRUE(log(0.5));
  handoff_.newest().close();
  EXPECT_FALSE(log(0.75)) << "which is the next one's";
  const auto step = next();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->facts.user[0], 0.5);
  EXPECT_EQ(step->taken, 1u);
}

TEST_F(Intake, AnotherStepBehindItIsEnough) {
  handoff_.publish_open(facts_of(1));
  EXPECT_TRUE(log(1));
  handoff_.publish_open(facts_of(2));
  EXPECT_TRUE(log(2));
  const auto first = next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->facts.user[0], 1);
  EXPECT_FALSE(next()) << "the second one is open";
  handoff_.publish(facts_of(3));
  const auto second = next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->facts.user[0], 2);
  const auto third = next();
  ASSERT_TRUE(third) << "it was never open";
  EXPECT_EQ(third->facts.run_step, 3);
}

TEST_F(Intake, ALoopThatShowsNothingDelaysAStepForAMoment) {
  handoff_.publish_open(facts_of(1));
  EXPECT_FALSE(next());
  EXPECT_TRUE(log(1));
  std::this_thread::sleep_for(StepIntake::kOpenFor);
  const auto step = next();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->facts.user[0], 1);
  EXPECT_FALSE(log(2)) << "too late";
}

TEST_F(Intake, AStepWithSomethingThatIsNotFiniteWaitsForNothing) {
  auto plan = std::make_shared<collectors::ReadPlan>();
  plan->id = 1;
  plan->model = std::make_shared<record::ModelInfo>();
  const std::array plans{std::shared_ptr<const collectors::ReadPlan>(std::move(plan))};
  handoff_.set_plans(plans, 1);
  const auto step_of = [&](std::int64_t step, std::int64_t nan) {
    kernels::TensorStats stats;
    stats.numel = 4;
    stats.nan = nan;
    StepFacts facts = facts_of(step);
    const std::array sites{kernels::Site::grad};
    facts.reads.set_on_host(collectors::SlotRole::gradients,
                            handoff_.publish(1, sites, std::array{stats}));
    return facts;
  };
  handoff_.publish_open(step_of(1, 0));
  EXPECT_FALSE(next());
  handoff_.publish_open(step_of(2, 1));
  EXPECT_TRUE(next());
  EXPECT_TRUE(next()) << "the one with the NaN";
}

TEST_F(Intake, WhoeverWaitsForTheStepsSoFarIsNotKeptWaiting) {
  handoff_.publish_open(facts_of(1));
  EXPECT_FALSE(next());
  handoff_.hurry();
  EXPECT_TRUE(next());
  handoff_.publish_open(facts_of(2));
  EXPECT_FALSE(next()) << "it came after that";
}

TEST_F(Intake, TheEndOfARunTakesAStepAsItIs) {
  handoff_.publish_open(facts_of(1));
  EXPECT_TRUE(log(1));
  const auto step = next(/*all=*/true);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->facts.user[0], 1);
}

}  // namespace
}  // namespace gradvane::agent
