#include "detectors/rules/rollback_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::Rollback;
using testing::EndsWith;
using testing::IsEmpty;
using testing::SizeIs;

class RollbackRulesTest : public test::FakeSteps {
 protected:
  static Rollback by_policy() {
    return {.reason = record::RollbackReason::nonfinite,
            .why = "step 120: the loss is not finite",
            .run_step = 120,
            .to_step = 100,
            .generation = 5,
            .snapshot_age_seconds = 12};
  }
};

TEST_F(RollbackRulesTest, EachIsOneIncidentThatIsOverAtOnce) {
  RollbackRules rules(3, book_, collect());
  rules.observe(by_policy(), Moment(120, 1000, 50));
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[0].kind, IncidentClass::rollback);
  EXPECT_EQ(reports_[0].rank, 3);
  EXPECT_EQ(reports_[0].first_step, 120);
  EXPECT_EQ(reports_[0].steps, 1);
  EXPECT_FALSE(reports_[0].closed_at);
  EXPECT_EQ(reports_[1].id, reports_[0].id);
  EXPECT_EQ(reports_[1].closed_at, 1000);
  EXPECT_EQ(reports_[0].evidence,
            "Step 120: the training went back to the state after step 100 (snapshot 5, 12 s old). "
            "The reason: step 120: the loss is not finite. Lost: 20 steps.");

  rules.observe(by_policy(), Moment(130, 1001, 51));
  ASSERT_THAT(reports_, SizeIs(4));
  EXPECT_NE(reports_[2].id, reports_[0].id) << "a moment later, and yet another one";
}

TEST_F(RollbackRulesTest, WhatWasAskedForAndWhatBecameOfTheOptimizerAreInTheEvidence) {
  RollbackRules rules(0, book_, collect());
  Rollback rollback = by_policy();
  rollback.reason = record::RollbackReason::requested;
  rollback.why = "loss spike";
  rollback.to_step = 119;
  rollback.batches_lost = 1;
  rollback.optimizer = "reset";
  rollback.lr_factor = 0.5;
  rules.observe(rollback, Moment(120, 1000, 50));
  EXPECT_THAT(reports_[0].evidence,
              EndsWith("The script asked for it: loss spike. Lost: 1 step, 1 batch. The "
                       "optimizer's state was reset. Learning rates were multiplied by 0.5."));
}

TEST_F(RollbackRulesTest, AClassThatIsNotDetectedOpensNoIncident) {
  Judged judged = default_judged();
  judged[index_of(IncidentClass::rollback)] = false;
  IncidentBook book(judged);
  RollbackRules rules(0, book, collect());
  rules.observe(by_policy(), Moment(120, 1000, 50));
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace gradvane::detectors
