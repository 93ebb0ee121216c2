// What the governor decides about rollbacks, and what it keeps of snapshots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>

#include "tests/agent/governor/findings.hpp"

namespace gradvane::agent {
namespace {

using namespace test;
using record::IncidentClass;
using testing::HasSubstr;
using testing::Not;

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

TEST(Governor, ARollbackThatFailsAfterItsStepStopsTheRunAtTheNextOne) {
  Options options = with(NonfinitePolicy::rollback);
  options.snapshot_every = 10;
  Governor governor(options);
  EXPECT_EQ(governor.judge(bad_gradient(5)).verdict, Verdict::rollback);
  governor.stop_at_next_step();
  EXPECT_TRUE(governor.should_stop());
  EXPECT_EQ(governor.judge(good(6)).verdict, Verdict::stop);
  EXPECT_EQ(governor.status().skipped_steps, 2);
  EXPECT_THAT(governor.stop_reason(), HasSubstr("step 5: a gradient is not finite"));
  EXPECT_THAT(governor.stop_reason(), HasSubstr("there was no snapshot to go back to"));
  EXPECT_EQ(governor.judge(good(6)).verdict, Verdict::take) << "a program that goes on may";

  EXPECT_EQ(governor.judge(bad_gradient(7)).verdict, Verdict::rollback);
  governor.stop_at_next_step();
  governor.resume();
  EXPECT_EQ(governor.judge(good(8)).verdict, Verdict::take);
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

constexpr double kLongAgo = 0;  // on the monotonic clock

record::Incident bad_from_to(IncidentClass kind, std::int64_t first, std::int64_t last,
                             std::int64_t id) {
  record::Incident opened = incident(kind, id);
  opened.first_step = first;
  opened.last_step = last;
  return opened;
}

TEST(Governor, OneEventLeadsToOneRollbackHoweverManyIncidentsItOpens) {
  Options options = with(NonfinitePolicy::rollback);
  options.on_divergence = DivergencePolicy::rollback;
  Governor governor(options);
  StepFinding on_device = good(9);
  on_device.is_measured = false;
  EXPECT_EQ(governor.judge(on_device).verdict, Verdict::take);

  governor.note_incident(bad_from_to(IncidentClass::grad_exploding, 8, 10, 1), true);
  EXPECT_EQ(governor.judge(good(11)).verdict, Verdict::rollback);
  governor.note_rollback({.run_step = 11, .to_step = 5}, true);
  for (const auto kind : {IncidentClass::loss_divergence, IncidentClass::nonfinite_weight,
                          IncidentClass::nonfinite_grad}) {
    governor.note_incident(bad_from_to(kind, 9, 11, 2), true, kLongAgo);
    EXPECT_EQ(governor.judge(good(12)).verdict, Verdict::take) << "of steps that are undone";
  }
  governor.note_incident(bad_from_to(IncidentClass::loss_divergence, 13, 15, 3), true);
  EXPECT_EQ(governor.judge(good(16)).verdict, Verdict::rollback) << "another event";
  EXPECT_EQ(governor.diverges_since(), 13);
}

TEST(Governor, ARollbackLeavesNothingToDoForIncidentsThatBeganBeforeIt) {
  Governor asked(on_divergence(DivergencePolicy::rollback));
  asked.note_incident(bad_from_to(IncidentClass::loss_divergence, 8, 10, 1), true, kLongAgo);
  asked.note_rollback({.run_step = 10, .to_step = 5}, false);
  EXPECT_EQ(asked.judge(good(11)).verdict, Verdict::take) << "the script has gone back";

  Governor later(with(NonfinitePolicy::rollback));
  EXPECT_EQ(later.judge(bad_gradient(10)).verdict, Verdict::rollback);
  later.note_rollback({.run_step = 12, .to_step = 5}, true);  // where the iteration ended
  later.note_incident(bad_from_to(IncidentClass::nonfinite_weight, 12, 12, 1), true, kLongAgo);
  EXPECT_EQ(later.judge(good(13)).verdict, Verdict::take);
}

TEST(Governor, AnIncidentBehindARollbackActsThoughTheRunStepStandsStill) {
  Governor governor(on_divergence(DivergencePolicy::rollback));
  for (const bool is_second : {false, true}) {
    const record::Incident opened = bad_from_to(IncidentClass::grad_exploding, 7, 7, 1 + is_second);
    governor.note_incident(opened, true);
    EXPECT_EQ(governor.judge(good(7)).verdict, Verdict::rollback) << is_second;
    governor.note_rollback({.run_step = 7, .to_step = 5}, true);
  }
}

TEST(Governor, ARelapseRightBehindARollbackIsBadFromThereOn) {
  Governor governor(on_divergence(DivergencePolicy::rollback));
  record::Incident opened = bad_from_to(IncidentClass::random_guess, 10, 10, 1);
  governor.note_incident(opened, true);
  EXPECT_EQ(governor.judge(good(11)).verdict, Verdict::rollback);
  governor.note_rollback({.run_step = 11, .to_step = 9}, true);
  opened.reopened = 1;
  opened.last_step = 12;
  governor.note_incident(opened, true);
  EXPECT_EQ(governor.judge(good(13)).verdict, Verdict::rollback);
  EXPECT_EQ(governor.diverges_since(), 12) << "the snapshot of step 9 is good";
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

TEST(Governor, ItsSummaryHasEachResultAndTheAgesOfTheSnapshots) {
  EXPECT_EQ(Governor(Options{}).summary(), std::nullopt);
  Governor governor(with(NonfinitePolicy::rollback));
  ASSERT_TRUE(governor.summary()) << "counters begin at 0";
  EXPECT_FALSE(governor.summary()->newest_snapshot);
  governor.count_snapshot(record::SnapshotResult::committed);
  governor.count_snapshot(record::SnapshotResult::incident);
  governor.count_snapshot(record::SnapshotResult::incident);
  governor.set_snapshots(std::array{record::KeptSnapshot{40, 3.0}, record::KeptSnapshot{30, 9.0}});
  governor.note_rollback({.run_step = 45, .to_step = 40}, false);
  const auto summary = governor.summary();
  EXPECT_EQ(summary->snapshots[index_of(record::SnapshotResult::committed)], 1);
  EXPECT_EQ(summary->snapshots[index_of(record::SnapshotResult::incident)], 2);
  EXPECT_EQ(summary->rollbacks[index_of(record::RollbackReason::requested)], 1);
  EXPECT_EQ(summary->newest_snapshot.value().run_step, 40);
  EXPECT_GE(summary->newest_snapshot->age_seconds, 3.0);
  EXPECT_LT(summary->newest_snapshot->age_seconds, 3.0 + 3600);
  EXPECT_EQ(summary->older_snapshot.value().run_step, 30);
  EXPECT_GE(summary->older_snapshot->age_seconds, 9.0);
  governor.set_snapshots({});
  EXPECT_FALSE(governor.summary()->newest_snapshot || governor.summary()->older_snapshot);
}

}  // namespace
}  // namespace gradvane::agent
