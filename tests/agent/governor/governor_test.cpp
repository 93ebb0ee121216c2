#include "agent/governor/governor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace gradvane::agent {

void PrintTo(Verdict verdict, std::ostream* out) { *out << name_of(verdict); }

namespace {

using record::IncidentClass;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

StepFinding good(std::int64_t run_step) {
  StepFinding step;
  step.run_step = run_step;
  step.is_measured = true;
  step.norm = 1.0;
  return step;
}
StepFinding bad_gradient(std::int64_t run_step) {
  StepFinding step = good(run_step);
  step.gradients_are_bad = true;
  return step;
}
StepFinding bad_loss(std::int64_t run_step) {
  StepFinding step = good(run_step);
  step.loss_is_bad = true;
  return step;
}
StepFinding of_norm(std::optional<double> norm) {
  StepFinding step = good(1);
  step.norm = norm;
  return step;
}

record::Incident incident(IncidentClass kind, std::int64_t id = 1) {
  record::Incident opened;
  opened.id = id;
  opened.kind = kind;
  return opened;
}

Options with(NonfinitePolicy policy) {
  Options options;
  options.on_nonfinite = policy;
  return options;
}
Options on_divergence(DivergencePolicy policy) {
  Options options;
  options.on_divergence = policy;
  return options;
}

struct Row {
  const char* name;
  Options options;
  StepFinding step;
  Verdict verdict;
  Fault fault;
};

StepFinding under_scaler(StepFinding step) {
  step.has_scaler = true;
  return step;
}
StepFinding begun(StepFinding step) {
  step.can_skip = false;
  return step;
}
Options bounded(double norm, NonfinitePolicy policy = NonfinitePolicy::skip) {
  Options options = with(policy);
  options.skip_norm = norm;
  return options;
}
Options of_two_processes(NonfinitePolicy policy) {
  Options options = with(policy);
  options.world_size = 2;
  return options;
}

std::vector<Row> rows() {
  using enum NonfinitePolicy;
  const auto take = Verdict::take;
  return {
      {"a good step is taken", with(skip), good(1), take, Fault::none},
      {"watch never acts", with(watch), bad_gradient(1), take, Fault::none},
      {"watch never acts on a loss", with(watch), bad_loss(1), take, Fault::none},
      {"skip: a gradient", with(skip), bad_gradient(1), Verdict::skip, Fault::gradient},
      {"skip: a loss alone", with(skip), bad_loss(1), Verdict::skip, Fault::loss},
      {"stop: a gradient", with(stop), bad_gradient(1), Verdict::stop, Fault::gradient},
      {"stop: a loss alone", with(stop), bad_loss(1), Verdict::stop, Fault::loss},
      {"rollback: a gradient", with(rollback), bad_gradient(1), Verdict::rollback, Fault::gradient},
      {"a scaler skips by itself", with(skip), under_scaler(bad_gradient(1)), take, Fault::none},
      {"a scaler's skip is no stop", with(stop), under_scaler(bad_gradient(1)), take, Fault::none},
      {"a scaler does not skip a bad loss with finite gradients", with(skip),
       under_scaler(bad_loss(1)), Verdict::skip, Fault::loss},
      {"a step that has begun is taken", with(skip), begun(bad_gradient(1)), take, Fault::none},
      {"and stops the run all the same", with(stop), begun(bad_gradient(1)), Verdict::stop,
       Fault::gradient},
      {"a norm at the bound", bounded(2), of_norm(2.0), take, Fault::none},
      {"a norm above it", bounded(2), of_norm(2.0000001), Verdict::skip, Fault::norm},
      {"a norm that overflowed", bounded(2), of_norm(kInf), Verdict::skip, Fault::norm},
      {"a norm that is NaN passes no comparison", bounded(2), of_norm(kNan), Verdict::skip,
       Fault::norm},
      {"a norm that was not measured", bounded(2), of_norm(std::nullopt), take, Fault::none},
      {"no bound", bounded(0), of_norm(1e300), take, Fault::none},
      {"a bound is for skip alone", bounded(2, stop), of_norm(3.0), take, Fault::none},
      {"each process has its own loss", of_two_processes(skip), bad_loss(1), take, Fault::none},
      {"and the same gradients", of_two_processes(skip), bad_gradient(1), Verdict::skip,
       Fault::gradient},
  };
}

TEST(Governor, DecidesByWhatWasReadOfAStep) {
  for (const Row& row : rows()) {
    Governor governor(row.options);
    const Decision decision = governor.judge(row.step);
    EXPECT_EQ(decision.verdict, row.verdict) << row.name;
    EXPECT_EQ(static_cast<int>(decision.fault), static_cast<int>(row.fault)) << row.name;
    EXPECT_FALSE(decision.is_escalated) << row.name;
  }
}

TEST(Governor, ActsOnlyWhereAPolicyIsSet) {
  EXPECT_FALSE(Governor(Options{}).acts());
  EXPECT_TRUE(Governor(with(NonfinitePolicy::skip)).acts());
  EXPECT_TRUE(Governor(on_divergence(DivergencePolicy::stop)).acts());
  EXPECT_FALSE(Governor(on_divergence(DivergencePolicy::stop)).acts_on_nonfinite());
  Options off = with(NonfinitePolicy::skip);
  off.enabled = false;
  EXPECT_FALSE(Governor(off).acts());
}

/// The verdicts of bad steps in a row.
std::vector<Verdict> bad_steps(Governor& governor, int steps) {
  std::vector<Verdict> verdicts;
  for (int i = 1; i <= steps; ++i) verdicts.push_back(governor.judge(bad_gradient(i)).verdict);
  return verdicts;
}

TEST(Governor, ManySkipsInARowEscalateToAStop) {
  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 3;
  Governor governor(options);
  EXPECT_THAT(bad_steps(governor, 3), ElementsAre(Verdict::skip, Verdict::skip, Verdict::stop));
  EXPECT_TRUE(governor.should_stop());
  EXPECT_EQ(governor.stop_reason(),
            "stopped: step 3, the last of 3 skipped in a row: a gradient is not finite");
  EXPECT_EQ(governor.status().skipped_steps, 3);
}

TEST(Governor, ManySkipsInARowEscalateToARollbackWhereThereAreSnapshots) {
  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 2;
  options.snapshot_every = 10;
  Governor governor(options);
  EXPECT_THAT(bad_steps(governor, 2), ElementsAre(Verdict::skip, Verdict::rollback));
  EXPECT_FALSE(governor.should_stop());
}

TEST(Governor, AGoodStepEndsARowOfSkips) {
  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 3;
  Governor governor(options);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(bad_steps(governor, 2), ElementsAre(Verdict::skip, Verdict::skip));
    EXPECT_EQ(governor.judge(good(9)).verdict, Verdict::take);
    EXPECT_EQ(governor.status().skips_in_a_row, 0);
  }
  EXPECT_EQ(governor.status().skipped_steps, 10);
}

TEST(Governor, SkipsOfOneOptimizerAreNotAnothers) {
  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 2;
  Governor governor(options);
  StepFinding critic = bad_gradient(1);
  critic.optimizer = 1;
  EXPECT_EQ(governor.judge(bad_gradient(1)).verdict, Verdict::skip);
  EXPECT_EQ(governor.judge(critic).verdict, Verdict::skip);
  EXPECT_EQ(governor.judge(good(2)).verdict, Verdict::take);
  EXPECT_EQ(governor.judge(critic).verdict, Verdict::stop);
}

TEST(Governor, AScalerThatNeverGetsOverItIsABadStepFromThe17th) {
  Governor stops(with(NonfinitePolicy::stop));
  for (int i = 1; i <= Governor::kTrustedOverflows; ++i)
    EXPECT_EQ(stops.judge(under_scaler(bad_gradient(i))).verdict, Verdict::take);
  EXPECT_EQ(stops.judge(under_scaler(bad_gradient(17))).verdict, Verdict::stop);

  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 3;
  Governor skips(options);
  for (int i = 1; i <= Governor::kTrustedOverflows + 2; ++i)
    EXPECT_EQ(skips.judge(under_scaler(bad_gradient(i))).verdict, Verdict::take)
        << "the scaler leaves it out by itself";
  EXPECT_EQ(skips.judge(under_scaler(bad_gradient(19))).verdict, Verdict::stop);
  EXPECT_EQ(skips.status().skipped_steps, 1) << "the scaler's own are not counted here";
}

TEST(Governor, ADivergenceActsOnceAtTheNextStep) {
  Governor governor(on_divergence(DivergencePolicy::stop));
  EXPECT_EQ(governor.judge(good(1)).verdict, Verdict::take);
  governor.note_incident(incident(IncidentClass::loss_divergence), true);
  const Decision decision = governor.judge(good(2));
  EXPECT_EQ(decision.verdict, Verdict::stop);
  EXPECT_EQ(governor.stop_reason(), "stopped: step 2: an incident loss_divergence is open");
  governor.note_incident(incident(IncidentClass::loss_divergence), false);
  EXPECT_EQ(governor.judge(good(3)).verdict, Verdict::take) << "more is known of the same one";
}

TEST(Governor, OnlyADivergenceIsOne) {
  Governor governor(on_divergence(DivergencePolicy::stop));
  for (const record::IncidentClassInfo& info : record::kIncidentClassTable) {
    governor.note_incident(incident(info.kind), true);
    const bool acts = governor.judge(good(1)).verdict == Verdict::stop;
    EXPECT_EQ(acts, record::is_divergence(info.kind)) << info.name;
  }
}

TEST(Governor, AnIncidentThatHasClosedIsNoReasonToAct) {
  Governor governor(on_divergence(DivergencePolicy::stop));
  record::Incident closed = incident(IncidentClass::loss_divergence);
  closed.closed_at = 1.0;
  governor.note_incident(closed, true);
  EXPECT_EQ(governor.judge(good(1)).verdict, Verdict::take);
}

TEST(Governor, BadWeightsThatAReadHasShownStopTheRunAtTheNextStep) {
  Governor governor(with(NonfinitePolicy::stop));
  governor.note_incident(incident(IncidentClass::nonfinite_weight), true);
  EXPECT_EQ(governor.judge(good(7)).verdict, Verdict::stop);
}

TEST(Governor, WhatWasJudgedInTimeIsNotActedOnAgain) {
  Governor governor(with(NonfinitePolicy::stop));
  EXPECT_EQ(governor.judge(bad_gradient(1)).verdict, Verdict::stop);
  governor.resume();
  governor.note_incident(incident(IncidentClass::nonfinite_grad), true);
  EXPECT_EQ(governor.judge(good(2)).verdict, Verdict::take);
}

TEST(Governor, OnADeviceTheIncidentItselfStopsTheRun) {
  Governor governor(with(NonfinitePolicy::stop));
  StepFinding on_device = good(1);
  on_device.is_measured = false;
  EXPECT_EQ(governor.judge(on_device).verdict, Verdict::take);
  governor.note_incident(incident(IncidentClass::nonfinite_grad), true);
  on_device.run_step = 2;
  EXPECT_EQ(governor.judge(on_device).verdict, Verdict::stop);
}

TEST(Governor, TooManyRollbacksWithinAWindowStopTheRun) {
  Options options = with(NonfinitePolicy::rollback);
  options.rollback_limit = 2;
  options.rollback_window = 10;
  Governor governor(options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(governor.judge(bad_gradient(5)).verdict, Verdict::rollback);
    governor.note_rollback({.run_step = 5, .to_step = 1}, true);
  }
  const Decision third = governor.judge(bad_gradient(5));
  EXPECT_EQ(third.verdict, Verdict::stop);
  EXPECT_TRUE(third.is_escalated);
  EXPECT_THAT(governor.stop_reason(), HasSubstr("after 2 rollbacks within 10 steps"));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(governor.judge(good(6)).verdict, Verdict::take);
  EXPECT_EQ(governor.judge(bad_gradient(7)).verdict, Verdict::rollback) << "the window has passed";
}

TEST(Governor, WithoutASnapshotARollbackStopsTheRunAndSaysSo) {
  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 1;
  options.snapshot_every = 10;
  Governor governor(options);
  EXPECT_EQ(governor.judge(bad_gradient(5)).verdict, Verdict::rollback);
  EXPECT_FALSE(governor.should_stop());
  governor.stop_instead();
  EXPECT_TRUE(governor.should_stop());
  EXPECT_THAT(governor.stop_reason(), HasSubstr("there was no snapshot to go back to"));
  EXPECT_THAT(governor.stop_reason(), Not(HasSubstr("rollbacks within")));
}

TEST(Governor, ARollbackThatTheScriptAskedForDoesNotCountForTheLimit) {
  Options options = with(NonfinitePolicy::rollback);
  options.rollback_limit = 1;
  Governor governor(options);
  for (int i = 0; i < 3; ++i) governor.note_rollback({.run_step = 5, .to_step = 1}, false);
  EXPECT_EQ(governor.judge(bad_gradient(6)).verdict, Verdict::rollback);
}

TEST(Governor, ARollbackHasTheReasonOfItsDecision) {
  const auto reason_after = [](Governor& governor) {
    governor.note_rollback({.run_step = 5, .to_step = 1}, true);
    return governor.take_rollbacks().back().reason;
  };
  Governor bad(with(NonfinitePolicy::rollback));
  EXPECT_EQ(bad.judge(bad_loss(5)).verdict, Verdict::rollback);
  EXPECT_EQ(reason_after(bad), record::RollbackReason::nonfinite);

  Governor diverging(on_divergence(DivergencePolicy::rollback));
  diverging.note_incident(incident(IncidentClass::loss_divergence), true);
  EXPECT_EQ(diverging.judge(good(5)).verdict, Verdict::rollback);
  EXPECT_EQ(reason_after(diverging), record::RollbackReason::divergence);

  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 1;
  options.snapshot_every = 10;
  Governor skipping(options);
  EXPECT_EQ(skipping.judge(bad_gradient(5)).verdict, Verdict::rollback);
  EXPECT_EQ(reason_after(skipping), record::RollbackReason::skips_in_a_row);
}

TEST(Governor, EachRollbackIsHandedOutOnce) {
  Governor governor(Options{});
  governor.note_rollback({.why = "first", .run_step = 5, .to_step = 1}, false);
  governor.note_rollback({.why = "second", .run_step = 9, .to_step = 5}, false);
  const auto rollbacks = governor.take_rollbacks();
  ASSERT_EQ(rollbacks.size(), 2);
  EXPECT_EQ(rollbacks[0].why, "first");
  EXPECT_EQ(rollbacks[0].reason, record::RollbackReason::requested);
  EXPECT_EQ(rollbacks[1].steps_lost(), 4);
  EXPECT_TRUE(governor.take_rollbacks().empty());
}

TEST(Governor, ADivergenceKnowsSinceWhen) {
  Options options = on_divergence(DivergencePolicy::rollback);
  options.loss_in_a_row = 5;
  Governor governor(options);
  EXPECT_EQ(governor.diverges_since(), std::nullopt);
  record::Incident opened = incident(IncidentClass::loss_divergence);
  opened.first_step = 96;
  opened.last_step = 100;
  governor.note_incident(opened, true);
  EXPECT_EQ(governor.judge(good(101)).verdict, Verdict::rollback);
  EXPECT_EQ(governor.diverges_since(), 96);

  // It comes back with the step of its first beginning, and that is long ago.
  opened.reopened = 1;
  opened.last_step = 300;
  governor.note_incident(opened, true);
  EXPECT_EQ(governor.judge(good(301)).verdict, Verdict::rollback);
  EXPECT_EQ(governor.diverges_since(), 296);
}

TEST(Governor, AStateThatMayBeginToDivergeIsNoSnapshotToGoBackTo) {
  Governor rolling(on_divergence(DivergencePolicy::rollback));
  EXPECT_TRUE(rolling.may_snapshot());
  rolling.note_state(5, true, true);
  EXPECT_FALSE(rolling.may_snapshot());
  rolling.note_state(6, true, false);
  EXPECT_TRUE(rolling.may_snapshot());
  rolling.note_state(6, false, false);
  EXPECT_FALSE(rolling.may_snapshot());

  Governor other(with(NonfinitePolicy::rollback));
  other.note_state(5, true, true);
  EXPECT_TRUE(other.may_snapshot()) << "no policy goes back from a divergence";
}

TEST(Governor, SnapshotsHaveAPaceWhereTheyAreNeeded) {
  EXPECT_FALSE(Governor(with(NonfinitePolicy::skip)).pace().is_on());
  EXPECT_EQ(Governor(with(NonfinitePolicy::rollback)).pace().steps, 100);
  EXPECT_EQ(Governor(on_divergence(DivergencePolicy::rollback)).pace().steps, 100);
  Options options = with(NonfinitePolicy::rollback);
  options.snapshot_every = 7;
  EXPECT_EQ(Governor(options).pace().steps, 7);
  options.snapshot_every = 0;
  options.snapshot_seconds = 60;
  EXPECT_EQ(Governor(options).pace().steps, 0) << "seconds alone";
  EXPECT_EQ(Governor(options).pace().seconds, 60);
}

TEST(Governor, ItsSummaryHasEachResultAndTheAgeOfTheNewestSnapshot) {
  EXPECT_EQ(Governor(Options{}).summary(), std::nullopt);
  Governor governor(with(NonfinitePolicy::rollback));
  ASSERT_TRUE(governor.summary()) << "counters begin at 0";
  EXPECT_EQ(governor.summary()->snapshot_age_seconds, std::nullopt);
  governor.count_snapshot(record::SnapshotResult::committed);
  governor.count_snapshot(record::SnapshotResult::incident);
  governor.count_snapshot(record::SnapshotResult::incident);
  governor.set_newest_snapshot(40, 3.0);
  governor.note_rollback({.run_step = 45, .to_step = 40}, false);
  const auto summary = governor.summary();
  EXPECT_EQ(summary->snapshots[index_of(record::SnapshotResult::committed)], 1);
  EXPECT_EQ(summary->snapshots[index_of(record::SnapshotResult::incident)], 2);
  EXPECT_EQ(summary->rollbacks[index_of(record::RollbackReason::requested)], 1);
  EXPECT_EQ(summary->snapshot_step, 40);
  EXPECT_GE(*summary->snapshot_age_seconds, 3.0);
  EXPECT_LT(*summary->snapshot_age_seconds, 3.0 + 3600);
  governor.set_newest_snapshot(0, 0);
  EXPECT_EQ(governor.summary()->snapshot_step, std::nullopt);
}

TEST(Governor, TheCheckpointOfAGoodStateIsTheLatestThatIsNotBehindIt) {
  Governor governor(Options{});
  EXPECT_EQ(governor.checkpoint_before(100), std::nullopt);
  for (const std::int64_t step : {10, 20, 30}) governor.note_checkpoint(step);
  EXPECT_EQ(governor.checkpoint_before(9), std::nullopt);
  EXPECT_EQ(governor.checkpoint_before(20), 20);
  EXPECT_EQ(governor.checkpoint_before(29), 20);
  for (std::int64_t step = 100; step < 1100; ++step) governor.note_checkpoint(step);
  EXPECT_EQ(governor.checkpoint_before(1099), 1099);
  EXPECT_EQ(governor.checkpoint_before(30), std::nullopt) << "only the latest are kept";
}

TEST(Governor, AProgramThatGoesOnIsNoLongerAskedToStop) {
  Governor governor(with(NonfinitePolicy::stop));
  (void)governor.judge(bad_gradient(1));
  EXPECT_TRUE(governor.should_stop());
  governor.resume();
  EXPECT_FALSE(governor.should_stop());
  EXPECT_EQ(governor.stop_reason(), "");
  EXPECT_EQ(governor.judge(bad_gradient(2)).verdict, Verdict::stop) << "another bad step";
}

}  // namespace
}  // namespace gradvane::agent
