#include "agent/step/facts/step_clock.hpp"

#include <gtest/gtest.h>

namespace gradvane::agent {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr auto kOther = static_cast<std::size_t>(record::Phase::other);
constexpr auto kForward = static_cast<std::size_t>(record::Phase::forward);

collectors::StepFacts end_of_step(StepClock& clock) {
  collectors::StepFacts facts;
  clock.end_step(facts);
  clock.clear();
  return facts;
}

TEST(StepClock, TheFirstStepHasNoLengthSinceNoneEndedBefore) {
  StepClock clock;
  clock.add_agent_time(milliseconds(250));
  const collectors::StepFacts facts = end_of_step(clock);
  EXPECT_EQ(facts.step_seconds, collectors::kNotMeasured);
  EXPECT_EQ(facts.agent_seconds, 0.25);
  EXPECT_EQ(facts.phase_seconds[kOther], 0);
}

TEST(StepClock, TimeOutsideOfPhasesIsOther) {
  StepClock clock;
  (void)end_of_step(clock);
  const collectors::StepFacts facts = end_of_step(clock);
  EXPECT_GE(facts.step_seconds, 0);
  EXPECT_EQ(facts.phase_seconds[kOther], facts.step_seconds);
}

TEST(StepClock, AStepIsAsLongAsBetweenTwoEnds) {
  StepClock clock;
  const collectors::StepFacts before = end_of_step(clock);
  const collectors::StepFacts facts = end_of_step(clock);
  EXPECT_NEAR(facts.step_seconds, facts.monotonic - before.monotonic, 1e-6);
}

TEST(StepClock, PhasesAddUpAndLeaveNothingForOther) {
  StepClock clock;
  (void)end_of_step(clock);
  clock.add_phase(Phase::forward, hours(1));
  clock.add_phase(Phase::forward, hours(2));
  clock.add_agent_time(hours(1));
  const collectors::StepFacts facts = end_of_step(clock);
  EXPECT_EQ(facts.phase_seconds[kForward], 3 * 3600.0);
  EXPECT_EQ(facts.agent_seconds, 3600.0);
  EXPECT_EQ(facts.phase_seconds[kOther], 0);
}

TEST(StepClock, AStepThatIsForgottenLeavesNothingToTheNext) {
  StepClock clock;
  (void)end_of_step(clock);
  clock.add_phase(Phase::forward, hours(1));
  clock.add_agent_time(hours(1));
  clock.clear();
  const collectors::StepFacts facts = end_of_step(clock);
  EXPECT_EQ(facts.phase_seconds[kForward], 0);
  EXPECT_EQ(facts.agent_seconds, 0);
}

}  // namespace
}  // namespace gradvane::agent
