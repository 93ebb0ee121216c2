#include "agent/governor/governor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/agent/governor/findings.hpp"

namespace gradvane::agent {

namespace {

using namespace test;
using record::IncidentClass;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

StepFinding of_norm(std::optional<double> norm) {
  StepFinding step = good(1);
  step.norm = norm;
  return step;
}

/// As the file of options has it when it changes.
void change(Governor& governor, const Options& options) {
  governor.want(ranks::policy_of(options));
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

TEST(Governor, AStopForTheNormSaysWhichNormAndWhichBound) {
  Options options = bounded(2);
  options.skip_limit = 2;
  Governor governor(options);
  for (const double norm : {3.0, 52.25}) {
    StepFinding step = good(7);
    step.norm = norm;
    (void)governor.judge(step);
  }
  EXPECT_EQ(governor.stop_reason(),
            "stopped: step 7, the last of 2 skipped in a row: the gradient norm, 52.25, is above "
            "skip_norm, which is 2");
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
  record::Incident diverges = incident(IncidentClass::loss_divergence);
  diverges.evidence = "Step 1: the loss rose to 9; the mean before was 2, the limit 4.";
  governor.note_incident(diverges, true);
  const Decision decision = governor.judge(good(2));
  EXPECT_EQ(decision.verdict, Verdict::stop);
  EXPECT_EQ(governor.stop_reason(),
            "stopped: step 2: an incident loss_divergence is open: step 1: the loss rose to 9; the "
            "mean before was 2, the limit 4");
  governor.note_incident(incident(IncidentClass::loss_divergence), false);
  EXPECT_EQ(governor.judge(good(3)).verdict, Verdict::take) << "more is known of the same one";
}

TEST(Governor, ADivergenceActsThoughTheStepsBehindItAreNotFiniteAndTaken) {
  Governor watching(on_divergence(DivergencePolicy::stop));
  watching.note_incident(incident(IncidentClass::loss_divergence), true);
  EXPECT_EQ(watching.judge(bad_loss(2)).verdict, Verdict::stop);

  Options options = with(NonfinitePolicy::skip);
  options.on_divergence = DivergencePolicy::stop;
  Governor of_closures(options);
  of_closures.note_incident(incident(IncidentClass::loss_divergence), true);
  EXPECT_EQ(of_closures.judge(begun(bad_loss(2))).verdict, Verdict::stop);
}

TEST(Governor, OneOfSeveralRanksNeverGoesBackAlone) {
  Options options = of_two_processes(NonfinitePolicy::rollback);
  Governor alone(options);
  EXPECT_EQ(alone.judge(bad_gradient(5)).verdict, Verdict::stop);
  EXPECT_EQ(
      alone.stop_reason(),
      "stopped: step 5: a gradient is not finite; ranks do not agree, and none goes back alone");
  options.on_nonfinite = NonfinitePolicy::skip;
  options.skip_limit = 1;
  options.snapshot_every = 10;
  EXPECT_EQ(Governor(options).judge(bad_gradient(5)).verdict, Verdict::stop);
  options.ranks = RankAgreement::agree;
  Governor agreeing(options);
  agreeing.lose_agreement("rank 1 has left");
  EXPECT_EQ(agreeing.judge(bad_gradient(5)).verdict, Verdict::stop);
}

TEST(Governor, AReasonHasTheWordsOfItsOwnIncidentAndOfNoOther) {
  Governor governor(on_divergence(DivergencePolicy::stop));
  record::Incident diverges = incident(IncidentClass::loss_divergence);
  diverges.evidence = "Step 1: the loss rose. More of it.";
  governor.note_incident(diverges, true);
  EXPECT_EQ(governor.judge(good(2)).verdict, Verdict::stop);
  record::Incident explodes = incident(IncidentClass::grad_exploding, 2);
  explodes.evidence = "Step 2: the gradient norm is high.";
  governor.note_incident(explodes, true);
  EXPECT_EQ(governor.stop_reason(),
            "stopped: step 2: an incident loss_divergence is open: step 1: the loss rose");
  diverges.reopened = 1;  // its words are still those of its first beginning
  diverges.last_step = 90;
  governor.note_incident(diverges, true);
  EXPECT_EQ(governor.judge(good(91)).verdict, Verdict::stop);
  EXPECT_EQ(governor.stop_reason(), "stopped: step 91: an incident loss_divergence is open");
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

TEST(Governor, APolicyThatChangesHoldsFromTheNextStepOn) {
  Governor governor(bounded(2));
  EXPECT_EQ(governor.judge(of_norm(3)).verdict, Verdict::skip);
  change(governor, bounded(5));
  EXPECT_EQ(governor.judge(of_norm(3)).verdict, Verdict::take);
  EXPECT_EQ(governor.judge(of_norm(6)).verdict, Verdict::skip);
  change(governor, with(NonfinitePolicy::watch));
  EXPECT_EQ(governor.judge(bad_gradient(4)).verdict, Verdict::take);
  EXPECT_FALSE(governor.acts_on_nonfinite());
  change(governor, with(NonfinitePolicy::stop));
  EXPECT_EQ(governor.judge(bad_gradient(5)).verdict, Verdict::stop);
}

TEST(Governor, ALimitThatChangesCountsTheSkipsThatWereBefore) {
  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 5;
  Governor governor(options);
  EXPECT_EQ(governor.judge(bad_gradient(1)).verdict, Verdict::skip);
  options.skip_limit = 2;
  change(governor, options);
  EXPECT_EQ(governor.judge(bad_gradient(2)).verdict, Verdict::stop);
  EXPECT_THAT(governor.reason(), HasSubstr("the last of 2 skipped in a row"));
}

}  // namespace
}  // namespace gradvane::agent
