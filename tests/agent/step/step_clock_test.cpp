#include "agent/step/facts/step_clock.hpp"

#include <gtest/gtest.h>

#include <thread>

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

TEST(StepClock, TimeSpentWaitingForRanksAddsUpWhateverPhaseItIsIn) {
  StepClock clock;
  EXPECT_EQ(end_of_step(clock).rank_wait_seconds, collectors::kNotMeasured);
  clock.add_phase(Phase::backward, hours(2));
  clock.add_rank_wait(hours(1));
  clock.add_rank_wait(hours(2));
  const collectors::StepFacts facts = end_of_step(clock);
  EXPECT_EQ(facts.rank_wait_seconds, 3 * 3600.0);
  EXPECT_EQ(facts.phase_seconds[static_cast<std::size_t>(Phase::backward)], 2 * 3600.0);
  clock.add_rank_wait(Clock::duration::zero());
  EXPECT_EQ(end_of_step(clock).rank_wait_seconds, 0) << "nobody was waited for, and that was seen";
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

Clock::time_point at(milliseconds time) { return Clock::time_point(hours(1) + time); }

TEST(UnbookedTime, APhaseWithinAnotherHasTheTimeAndTogetherTheyHaveAllOfIt) {
  const Clock::duration outer = UnbookedTime::at(at(milliseconds(0)));
  const Clock::duration inner = UnbookedTime::at(at(milliseconds(10)));
  EXPECT_EQ(UnbookedTime::book_since(inner, at(milliseconds(40))), milliseconds(30));
  const Clock::duration second = UnbookedTime::at(at(milliseconds(50)));
  EXPECT_EQ(UnbookedTime::book_since(second, at(milliseconds(60))), milliseconds(10));
  EXPECT_EQ(UnbookedTime::book_since(outer, at(milliseconds(100))), milliseconds(60));
}

TEST(UnbookedTime, TheAgentsOwnTimeIsNoPhases) {
  StepClock clock;
  const Clock::duration phase = UnbookedTime::at(at(milliseconds(0)));
  clock.add_agent_time(milliseconds(7));
  EXPECT_EQ(UnbookedTime::book_since(phase, at(milliseconds(10))), milliseconds(3));
}

TEST(UnbookedTime, PhasesThatDoNotNestNeverHaveLessThanNoTime) {
  const Clock::duration first = UnbookedTime::at(at(milliseconds(0)));
  const Clock::duration second = UnbookedTime::at(at(milliseconds(10)));
  EXPECT_EQ(UnbookedTime::book_since(first, at(milliseconds(30))), milliseconds(30));
  EXPECT_EQ(UnbookedTime::book_since(second, at(milliseconds(30))), milliseconds(0));
}

TEST(UnbookedTime, IsEachThreadsOwn) {
  const Clock::duration here = UnbookedTime::at(at(milliseconds(0)));
  std::thread([] { UnbookedTime::book(hours(1)); }).join();
  EXPECT_EQ(UnbookedTime::book_since(here, at(milliseconds(10))), milliseconds(10));
}

}  // namespace
}  // namespace gradvane::agent
