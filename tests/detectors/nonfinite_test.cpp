#include "detectors/nonfinite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "record/numbers.hpp"
#include "tests/detectors/fake_steps.hpp"
#include "tests/detectors/nonfinite_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::Incident;
using record::IncidentClass;
using record::NonfiniteKind;
using record::Site;
using record::StepRecord;
using test::kNan;
using test::kSites;

using NonfiniteTest = test::NonfiniteSteps;

TEST_F(NonfiniteTest, NothingIsReportedOfACleanRun) {
  for (const Site site : kSites) observe_clean(site, 100);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(NonfiniteTest, OpensAtTheFirstBadStepWithItsEvidence) {
  observe_clean(Site::grad, 4);
  StepRecord step = read(Site::grad, 5);
  step.nonfinite[index_of(Site::grad)] = {5, 2, 1};
  step.first_by_site[index_of(Site::grad)] = {Site::grad, NonfiniteKind::neg_inf, 1, 42};
  observe(step);
  ASSERT_EQ(reports_.size(), 1U);
  const Incident& incident = reports_[0];
  EXPECT_EQ(incident.id, 1);
  EXPECT_EQ(incident.kind, IncidentClass::nonfinite_grad);
  EXPECT_EQ(incident.rank, 3);
  EXPECT_EQ(incident.first_step, 5);
  EXPECT_EQ(incident.last_step, 5);
  EXPECT_EQ(incident.steps, 1);
  EXPECT_EQ(incident.opened_at, 1005);
  EXPECT_FALSE(incident.closed_at);
  ASSERT_TRUE(incident.first);
  EXPECT_EQ(incident.first->element, 42);
  EXPECT_EQ(incident.param, "head.bias");
  EXPECT_EQ(incident.evidence,
            "Step 5: the gradient of head.bias became neg_inf at element 42 (5 NaN, 2 +Inf, 1 -Inf "
            "in that step).");
}

TEST_F(NonfiniteTest, AnyKindOpens) {
  for (std::size_t kind = 0; kind < record::kNonfiniteKinds; ++kind) {
    for (const Site site : kSites) {
      IncidentBook book;
      NonfiniteDetector detector(0, true, book,
                                 [&](const Incident& incident) { reports_.push_back(incident); });
      StepRecord step = read(site, 0);
      step.nonfinite[index_of(site)][kind] = 1;
      detector.observe(step, model_);
      ASSERT_EQ(reports_.size(), 1U);
      EXPECT_EQ(reports_[0].kind, static_cast<IncidentClass>(index_of(site)));
      reports_.clear();
    }
  }
}

TEST_F(NonfiniteTest, TenThousandBadStepsAreOneIncident) {
  for (int i = 0; i < 10'000; ++i) observe(read(Site::grad, 7));
  ASSERT_EQ(reports_.size(), 1U);
  observe_clean(Site::grad, kClearAfter);
  ASSERT_EQ(reports_.size(), 2U);
  EXPECT_EQ(reports_[1].id, 1);
  EXPECT_EQ(reports_[1].steps, 10'000);
  EXPECT_EQ(reports_[1].last_step, 10'000);
}

TEST_F(NonfiniteTest, ClosesAfterTenCleanReadsInARow) {
  observe(read(Site::loss, 1));
  observe_clean(Site::loss, kClearAfter - 1);
  observe(read(Site::loss, 1));  // begins again
  observe_clean(Site::loss, kClearAfter - 1);
  EXPECT_EQ(reports_.size(), 1U);
  observe_clean(Site::loss, 1);
  ASSERT_EQ(reports_.size(), 2U);
  EXPECT_EQ(reports_[1].first_step, 1);
  EXPECT_EQ(reports_[1].last_step, 1 + kClearAfter);
  EXPECT_EQ(reports_[1].steps, 2);
  EXPECT_EQ(reports_[1].closed_at, 1000.0 + 1 + kClearAfter + kClearAfter);
  observe_clean(Site::loss, 100);
  EXPECT_EQ(reports_.size(), 2U);
}

TEST_F(NonfiniteTest, OpensAgainUnderAnotherNumber) {
  for (int round = 0; round < 3; ++round) {
    observe(read(Site::grad, 1));
    observe_clean(Site::grad, kClearAfter);
  }
  ASSERT_EQ(reports_.size(), 6U);
  for (std::size_t i = 0; i < reports_.size(); ++i) {
    EXPECT_EQ(reports_[i].id, static_cast<std::int64_t>(i / 2 + 1));
    EXPECT_EQ(reports_[i].closed_at.has_value(), i % 2 == 1);
    EXPECT_EQ(reports_[i].steps, 1);
  }
}

TEST_F(NonfiniteTest, AStepThatDidNotReadTheSiteIsNeitherGoodNorBad) {
  observe(read(Site::weight, 1));
  for (int i = 0; i < 500; ++i) observe(read(Site::grad, 0));
  for (int i = 0; i < 500; ++i) observe(unread());
  EXPECT_EQ(reports_.size(), 1U);
  StepRecord unmeasured = read(Site::weight, 9);
  unmeasured.site_measured[index_of(Site::weight)] = std::nullopt;
  observe(unmeasured);
  unmeasured.site_measured[index_of(Site::weight)] = false;
  observe(unmeasured);
  observe_clean(Site::weight, NonfiniteDetector::kWeightsClearAfter);
  ASSERT_EQ(reports_.size(), 2U);
  EXPECT_EQ(reports_[1].steps, 1);
}

TEST_F(NonfiniteTest, AnOverflowThatTheScalerHandlesIsNoIncidentOfGradientsButStillOfTheLoss) {
  StepRecord overflow = read(Site::grad, 100);
  overflow.skipped = record::SkipReason::amp_overflow;
  for (int i = 0; i < 50; ++i) observe(overflow);
  EXPECT_TRUE(reports_.empty());

  observe(read(Site::grad, 1));
  for (int i = 0; i < 50; ++i) observe(overflow);  // neither clears nor counts
  EXPECT_EQ(reports_.size(), 1U);
  observe_clean(Site::grad, kClearAfter);
  ASSERT_EQ(reports_.size(), 2U);
  EXPECT_EQ(reports_[1].steps, 1);

  overflow.site_measured[index_of(Site::loss)] = true;
  overflow.nonfinite[index_of(Site::loss)] = {1, 0, 0};
  observe(overflow);
  ASSERT_EQ(reports_.size(), 3U);
  EXPECT_EQ(reports_[2].kind, IncidentClass::nonfinite_loss);
}

TEST_F(NonfiniteTest, AStepThatTheLoopSkippedIsBadAllTheSame) {
  StepRecord skipped = read(Site::grad, 1);
  skipped.skipped = record::SkipReason::loop;
  observe(skipped);
  EXPECT_EQ(reports_.size(), 1U);
}

TEST_F(NonfiniteTest, NumbersThatAreNanThemselvesNeitherThrowNorDecide) {
  const std::vector<void (*)(StepRecord&)> poisons = {
      [](StepRecord& s) { s.time = kNan; },
      [](StepRecord& s) { s.lr.fill(kNan); },
      [](StepRecord& s) { s.user.fill(kNan); },
      [](StepRecord& s) { s.phase_seconds.fill(kNan); },
      [](StepRecord& s) { s.agent_seconds = kNan; },
  };
  for (const auto poison : poisons) {
    StepRecord clean = read(Site::grad, 0);
    poison(clean);
    EXPECT_NO_THROW(observe(clean));
  }
  for (const record::StepNumber& number : record::kStepNumbers) {
    if (number.stored == nullptr) continue;
    StepRecord clean = read(Site::grad, 0);
    clean.*number.stored = kNan;
    EXPECT_NO_THROW(observe(clean)) << number.key;
  }
  EXPECT_TRUE(reports_.empty()) << "the counts of the pass decide, nothing else";
  for (const auto poison : poisons) {
    StepRecord bad = read(Site::grad, 1);
    poison(bad);
    EXPECT_NO_THROW(observe(bad));
  }
  EXPECT_EQ(reports_.size(), 1U);
}

TEST_F(NonfiniteTest, ABadElementOfAParameterThatTheModelDoesNotHaveIsReportedWithoutAName) {
  for (const std::int32_t param : {-1, 2, 1'000'000}) {
    IncidentBook book;
    NonfiniteDetector detector(0, true, book,
                               [&](const Incident& incident) { reports_.push_back(incident); });
    StepRecord step = read(Site::grad, 1);
    step.first_by_site[index_of(Site::grad)] = {Site::grad, NonfiniteKind::nan, param, 0};
    detector.observe(step, model_);
    ASSERT_EQ(reports_.size(), 1U);
    EXPECT_EQ(reports_[0].param, "");
    EXPECT_THAT(reports_[0].evidence, testing::HasSubstr("the gradient became nan at element 0"));
    reports_.clear();
  }
}

TEST_F(NonfiniteTest, TheLossHasNoElement) {
  StepRecord step = read(Site::loss, 1);
  step.first_by_site[index_of(Site::loss)] = {Site::loss, NonfiniteKind::nan, -1, 0};
  observe(step);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].evidence,
            "Step 1: the loss became nan (1 NaN, 0 +Inf, 0 -Inf in that step).");
}

TEST_F(NonfiniteTest, AReportThatThrowsIsNotRepeated) {
  int reports = 0;
  IncidentBook book;
  NonfiniteDetector detector(0, true, book, [&](const Incident&) {
    ++reports;
    throw std::runtime_error("full");
  });
  EXPECT_THROW(detector.observe(read(Site::grad, 1), model_), std::runtime_error);
  EXPECT_NO_THROW(detector.observe(read(Site::grad, 1), model_));
  for (int i = 1; i < kClearAfter; ++i) detector.observe(read(Site::grad, 0), model_);
  EXPECT_THROW(detector.observe(read(Site::grad, 0), model_), std::runtime_error);
  EXPECT_NO_THROW(detector.observe(read(Site::grad, 0), model_));
  EXPECT_EQ(reports, 2);
}

}  // namespace
}  // namespace gradvane::detectors
