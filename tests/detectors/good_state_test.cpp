#include "detectors/good_state.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::Site;
using record::SkipReason;

record::StepRecord step(std::int64_t run_step, std::optional<Site> bad = std::nullopt,
                        SkipReason skipped = SkipReason::none) {
  record::StepRecord record;
  record.run_step = run_step;
  record.skipped = skipped;
  record.site_measured[index_of(Site::loss)] = true;
  record.site_measured[index_of(Site::grad)] = true;
  if (bad) record.nonfinite[index_of(*bad)][0] = 1;
  return record;
}

record::Incident incident(IncidentClass kind, std::int64_t first_step, std::int64_t id = 1) {
  record::Incident opened;
  opened.id = id;
  opened.kind = kind;
  opened.first_step = first_step;
  return opened;
}

record::Incident closed(record::Incident incident) {
  incident.closed_at = 1.0;
  return incident;
}

class GoodStateTest : public testing::Test {
 protected:
  void good_steps(std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i <= last; ++i) state_.observe(step(i));
  }
  GoodState state_;
};

TEST_F(GoodStateTest, EachGoodStepLeavesAGoodState) {
  EXPECT_EQ(state_.last_good_step(), std::nullopt);
  good_steps(1, 3);
  EXPECT_EQ(state_.last_good_step(), 3);
  EXPECT_TRUE(state_.is_good());
}

TEST_F(GoodStateTest, ABadStepThatWasTakenSpoilsItUntilTheIncidentHasClosed) {
  good_steps(1, 3);
  const record::Incident opened = state_.note(incident(IncidentClass::nonfinite_grad, 4));
  EXPECT_EQ(opened.last_good_step, 3);
  state_.observe(step(4, Site::grad));
  EXPECT_FALSE(state_.is_good());
  good_steps(5, 10);
  EXPECT_EQ(state_.last_good_step(), 3) << "the weights may hold NaN";
  EXPECT_EQ(state_.note(closed(opened)).last_good_step, 3) << "it stays what it was";
  good_steps(11, 11);
  EXPECT_TRUE(state_.is_good());
  EXPECT_EQ(state_.last_good_step(), 11);
}

TEST_F(GoodStateTest, ABadStepThatWasSkippedSpoilsNothing) {
  for (const SkipReason skipped :
       {SkipReason::governor, SkipReason::amp_overflow, SkipReason::loop}) {
    GoodState state;
    state.observe(step(1));
    (void)state.note(incident(IncidentClass::nonfinite_grad, 2));
    state.observe(step(2, Site::grad, skipped));
    EXPECT_TRUE(state.is_good()) << name_of(skipped);
    EXPECT_EQ(state.last_good_step(), 1) << name_of(skipped);
    state.observe(step(3));
    EXPECT_EQ(state.last_good_step(), 3) << "although the incident is still open";
  }
}

TEST_F(GoodStateTest, BadWeightsWereGoodAtTheirLastFiniteRead) {
  good_steps(1, 60);
  record::Incident bad = incident(IncidentClass::nonfinite_weight, 61);
  bad.order.emplace_back().site = Site::weight;
  bad.order.back().last_finite = 50;
  EXPECT_EQ(state_.note(bad).last_good_step, 50);
  state_.observe(step(61, Site::weight));
  EXPECT_FALSE(state_.is_good());
  EXPECT_EQ(state_.last_good_step(), 50);
}

TEST_F(GoodStateTest, BadWeightsThatWereNeverReadBeforeHaveNoGoodStep) {
  good_steps(1, 60);
  record::Incident bad = incident(IncidentClass::nonfinite_weight, 61);
  bad.order.emplace_back().site = Site::weight;
  EXPECT_EQ(state_.note(bad).last_good_step, std::nullopt);
}

TEST_F(GoodStateTest, ARollbackMakesItGoodAgainWhileTheIncidentIsOpen) {
  good_steps(1, 4);
  (void)state_.note(incident(IncidentClass::nonfinite_grad, 5));
  state_.observe(step(5, Site::grad));
  ASSERT_FALSE(state_.is_good());
  state_.note_rollback();
  EXPECT_TRUE(state_.is_good());
  good_steps(6, 6);
  EXPECT_EQ(state_.last_good_step(), 6);
  state_.observe(step(7, Site::grad));
  EXPECT_FALSE(state_.is_good()) << "another bad step that was taken";
}

TEST_F(GoodStateTest, ADivergenceSpoilsItFromItsFirstStep) {
  good_steps(1, 12);
  const record::Incident opened = state_.note(incident(IncidentClass::loss_divergence, 10));
  EXPECT_EQ(opened.last_good_step, 9);
  state_.observe(step(12));
  EXPECT_FALSE(state_.is_good());
  EXPECT_EQ(state_.last_good_step(), 9);
  (void)state_.note(closed(opened));
  EXPECT_TRUE(state_.is_good());
}

TEST_F(GoodStateTest, ReplicasThatDifferSpoilItFromWhenTheyWereLastEqual) {
  good_steps(1, 121);
  record::Incident mismatch = incident(IncidentClass::replica_mismatch, 121);
  mismatch.last_good_step = 100;
  EXPECT_EQ(state_.note(mismatch).last_good_step, 100);
  EXPECT_FALSE(state_.is_good());
  good_steps(122, 130);
  EXPECT_EQ(state_.last_good_step(), 100);
  EXPECT_EQ(state_.note(closed(mismatch)).last_good_step, 100);
  good_steps(131, 131);
  EXPECT_EQ(state_.last_good_step(), 131);
}

TEST_F(GoodStateTest, OtherIncidentsShowTheLastGoodStepAndSpoilNothing) {
  good_steps(1, 5);
  EXPECT_EQ(state_.note(incident(IncidentClass::sync_budget, 3)).last_good_step, 5);
  EXPECT_TRUE(state_.is_good());
  good_steps(6, 6);
  EXPECT_EQ(state_.last_good_step(), 6);
}

TEST_F(GoodStateTest, AStepThatWasNotReadIsNotKnownToBeGood) {
  good_steps(1, 2);
  record::StepRecord unread;
  unread.run_step = 3;
  state_.observe(unread);
  EXPECT_EQ(state_.last_good_step(), 2);
}

}  // namespace
}  // namespace gradvane::detectors
