#include "detectors/sync_budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace gradvane::detectors {
namespace {

using record::Incident;
using record::IncidentClass;
using record::StepRecord;
using record::StepSyncSite;
using record::SyncKind;
using record::SyncOrigin;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class SyncBudgetTest : public testing::Test {
 protected:
  static constexpr int kClearAfter = SyncBudgetDetector::kClearAfter;

  void set_budget(std::optional<std::int32_t> training, std::int32_t after = 0) {
    detector_.emplace(4, SyncBudgetDetector::Budget{training, after}, book_,
                      [this](const Incident& incident) { reports_.push_back(incident); });
  }
  StepRecord step(std::int32_t training, std::int32_t own = 0) {
    StepRecord record = uncounted();
    record.syncs.emplace();
    record.syncs->calls[0][index_of(SyncKind::d2h_read)] = training;
    record.syncs->calls[1][index_of(SyncKind::event)] = own;
    return record;
  }
  StepRecord uncounted() {
    StepRecord record;
    record.run_step = ++step_;
    record.time = 1000 + static_cast<double>(step_);
    return record;
  }
  void observe(const StepRecord& record) {
    detector_->observe(record, [this](SyncOrigin) {
      ++asked_;
      return sites_;
    });
  }

  IncidentBook book_;
  std::int64_t step_ = 0;
  int asked_ = 0;
  std::vector<StepSyncSite> sites_;
  std::vector<Incident> reports_;
  std::optional<SyncBudgetDetector> detector_;
};

TEST_F(SyncBudgetTest, WithinItsBudgetNothingIsReported) {
  set_budget(2);
  for (int i = 0; i < 100; ++i) observe(step(2));
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_EQ(asked_, 0) << "places cost time, and are for evidence";
}

TEST_F(SyncBudgetTest, WithoutABudgetAnyNumberIsAllowed) {
  set_budget(std::nullopt);
  observe(step(100'000));
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(SyncBudgetTest, AStepOverItsBudgetIsOneIncidentWithThePlaces) {
  sites_ = {{"train.py:41", SyncKind::d2h_read, 400, 0.2},
            {"train.py:60", SyncKind::stream, 3, 0.1},
            {"data.py:7", SyncKind::memcpy, 2, 0.1},
            {"data.py:9", SyncKind::memcpy, 1, 0.1}};
  set_budget(2);
  for (int i = 0; i < 1000; ++i) observe(step(406));
  ASSERT_THAT(reports_, SizeIs(1));
  const Incident& incident = reports_[0];
  EXPECT_EQ(incident.kind, IncidentClass::sync_budget);
  EXPECT_EQ(incident.id, 1);
  EXPECT_EQ(incident.rank, 4);
  EXPECT_EQ(incident.first_step, 1);
  EXPECT_EQ(incident.evidence,
            "Step 1: 406 host syncs, budget 2: train.py:41 (d2h_read, 400), train.py:60 (stream, "
            "3), data.py:7 (memcpy, 2) and 1 more places.");
}

TEST_F(SyncBudgetTest, ItClosesAfterAWhileWithinTheBudgetAndMayOpenAgain) {
  set_budget(0);
  observe(step(1));
  for (int i = 0; i < kClearAfter - 1; ++i) observe(step(0));
  observe(step(1));  // not yet over
  for (int i = 0; i < kClearAfter; ++i) observe(step(0));
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[1].id, reports_[0].id);
  EXPECT_EQ(reports_[1].steps, 2);
  EXPECT_EQ(reports_[1].last_step, kClearAfter + 1);
  EXPECT_TRUE(reports_[1].closed_at.has_value());
  observe(step(1));
  ASSERT_THAT(reports_, SizeIs(3));
  EXPECT_EQ(reports_[2].id, 2);
}

TEST_F(SyncBudgetTest, TheFirstStepsMayHaveMore) {
  set_budget(1, 3);
  for (int i = 0; i < 3; ++i) observe(step(50));
  EXPECT_THAT(reports_, IsEmpty());
  observe(step(2));
  EXPECT_THAT(reports_, SizeIs(1));
  record::SyncSummary summary;
  detector_->fill(summary);
  EXPECT_EQ(summary.most_in_step, 2) << "of the steps that have a budget";
  EXPECT_EQ(summary.most_in_step_at, 4);
}

TEST_F(SyncBudgetTest, GradvanesOwnBudgetHoldsFromTheFirstStepOn) {
  set_budget(std::nullopt, 10);
  StepRecord immediate = step(0, 1);
  immediate.own_sync_budget = 1;
  observe(immediate);
  EXPECT_THAT(reports_, IsEmpty());
  observe(step(0, 1));
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::own_sync_budget);
  EXPECT_THAT(reports_[0].evidence, HasSubstr("by Gradvane itself, budget 0"));
}

TEST_F(SyncBudgetTest, StepsThatNobodyCountedAreNeitherGoodNorBad) {
  set_budget(0);
  observe(step(1));
  for (int i = 0; i < 100; ++i) observe(uncounted());
  EXPECT_THAT(reports_, SizeIs(1)) << "unmeasured does not clear";
}

TEST_F(SyncBudgetTest, StepsThatTheBudgetHeldForAndNobodyCountedAreSaid) {
  set_budget(0, 2);
  for (int i = 0; i < 5; ++i) observe(uncounted());
  record::SyncSummary summary;
  detector_->fill(summary);
  EXPECT_EQ(summary.steps_uncounted, 3) << "the budget did not hold for the first two";
}

TEST_F(SyncBudgetTest, TheTrainingsBudgetIsNotBrokenByWhatOnlyMayWait) {
  set_budget(1);
  sites_ = {{"train.py:9", SyncKind::alloc_free, 7, 0.2},
            {"train.py:4", SyncKind::d2h_read, 2, 0.1}};
  StepRecord record = step(1);
  for (const SyncKind kind :
       {SyncKind::alloc_free, SyncKind::async_copy_blocked, SyncKind::module_load})
    record.syncs->calls[0][index_of(kind)] = 7;
  observe(record);
  EXPECT_THAT(reports_, IsEmpty());
  observe(step(2));
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].evidence, "Step 2: 2 host syncs, budget 1: train.py:4 (d2h_read, 2).");
}

TEST_F(SyncBudgetTest, OurOwnBudgetIsNotBrokenByWhatOnlyMayWait) {
  set_budget(std::nullopt);
  StepRecord record = step(0);
  record.syncs->calls[1][index_of(SyncKind::alloc_free)] = 2;
  record.syncs->calls[1][index_of(SyncKind::async_copy_blocked)] = 1;
  observe(record);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(SyncBudgetTest, RejectedCallsDoNotCount) {
  set_budget(0);
  StepRecord record = step(0);
  record.syncs->calls[0][index_of(SyncKind::rejected_in_capture)] = 9;
  observe(record);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(SyncBudgetTest, TheSummaryHoldsBudgetsBreachesAndTheWorstStep) {
  set_budget(2);
  for (const std::int32_t count : {0, 3, 7, 1, 7}) observe(step(count));
  record::SyncSummary summary;
  detector_->fill(summary);
  EXPECT_EQ(summary.budget, 2);
  EXPECT_EQ(summary.steps_over[0], 3);
  EXPECT_EQ(summary.steps_over[1], 0);
  EXPECT_EQ(summary.most_in_step, 7);
  EXPECT_EQ(summary.most_in_step_at, 3) << "the first of the worst";
}

TEST_F(SyncBudgetTest, BothOriginsHaveIncidentsOfTheirOwn) {
  set_budget(0);
  observe(step(1, 1));
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_NE(reports_[0].id, reports_[1].id);
  EXPECT_THAT(reports_[1].evidence, Not(HasSubstr("Gradvane")));
}

}  // namespace
}  // namespace gradvane::detectors
