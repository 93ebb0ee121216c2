#include "detectors/nonfinite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "detectors/nonfinite_words.hpp"

namespace gradvane::detectors {
namespace {

using record::Incident;
using record::IncidentClass;
using record::NonfiniteKind;
using record::Site;
using record::StepRecord;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kClearAfter = NonfiniteDetector::kClearAfter;
constexpr NonfiniteDetector::Sites kAllSites{true, true, true};
constexpr Site kSites[] = {Site::loss, Site::grad, Site::weight};

std::size_t at(Site site) { return static_cast<std::size_t>(site); }

class NonfiniteTest : public testing::Test {
 protected:
  NonfiniteTest() {
    model_.params.resize(2);
    model_.params[0].name = "embedding.weight";
    model_.params[1].name = "head.bias";
  }

  /// A step in which `site` was read and held `bad` elements that are NaN.
  StepRecord read(Site site, std::int64_t bad) {
    StepRecord step = unread();
    step.site_measured[at(site)] = true;
    step.nonfinite[at(site)] = {bad, 0, 0};
    return step;
  }
  StepRecord unread() {
    StepRecord step;
    step.step = step.run_step = ++step_;
    step.time = 1000 + static_cast<double>(step_);
    return step;
  }
  void observe(const StepRecord& step) { detector_.observe(step, model_); }
  void observe_clean(Site site, int times) {
    for (int i = 0; i < times; ++i) observe(read(site, 0));
  }

  record::ModelInfo model_;
  std::int64_t step_ = 0;
  std::vector<Incident> reports_;
  IncidentIds ids_;
  NonfiniteDetector detector_{3, kAllSites, ids_,
                              [this](const Incident& incident) { reports_.push_back(incident); }};
};

TEST_F(NonfiniteTest, NothingIsReportedOfACleanRun) {
  for (const Site site : kSites) observe_clean(site, 100);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(NonfiniteTest, OpensAtTheFirstBadStepWithItsEvidence) {
  observe_clean(Site::grad, 4);
  StepRecord step = read(Site::grad, 5);
  step.nonfinite[at(Site::grad)] = {5, 2, 1};
  step.first_by_site[at(Site::grad)] = {Site::grad, NonfiniteKind::neg_inf, 1, 42};
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
      IncidentIds ids;
      NonfiniteDetector detector(0, kAllSites, ids,
                                 [&](const Incident& incident) { reports_.push_back(incident); });
      StepRecord step = read(site, 0);
      step.nonfinite[at(site)][kind] = 1;
      detector.observe(step, model_);
      ASSERT_EQ(reports_.size(), 1U);
      EXPECT_EQ(reports_[0].kind, static_cast<IncidentClass>(at(site)));
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

TEST_F(NonfiniteTest, SitesThatGoBadTogetherAreOneIncidentInTheOrderOfAStep) {
  StepRecord all = unread();
  for (const Site site : kSites) {
    all.site_measured[at(site)] = true;
    all.nonfinite[at(site)] = {1, 0, 0};
  }
  observe(all);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].kind, IncidentClass::nonfinite_loss);
  EXPECT_EQ(reports_[0].began_in, record::BeganIn::forward);
  ASSERT_EQ(reports_[0].order.size(), 3U);
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(reports_[0].order[s].site, kSites[s]);
  EXPECT_EQ(reports_[0].steps, 1);
}

TEST_F(NonfiniteTest, WhatGoesBadLaterJoinsTheIncidentWithItsStepAndItsBlame) {
  StepRecord first = read(Site::grad, 1);
  first.site_measured[at(Site::loss)] = true;
  first.first_by_site[at(Site::grad)] = {Site::grad, NonfiniteKind::nan, 1, 7};
  observe(first);
  StepRecord second = read(Site::loss, 1);
  second.first_by_site[at(Site::loss)] = {Site::loss, NonfiniteKind::nan, -1, 0};
  observe(second);
  StepRecord third = read(Site::weight, 3);
  third.first_by_site[at(Site::weight)] = {Site::weight, NonfiniteKind::pos_inf, 0, 2};
  observe(third);
  ASSERT_EQ(reports_.size(), 3U);
  for (const Incident& report : reports_) {
    EXPECT_EQ(report.id, 1);
    EXPECT_EQ(report.kind, IncidentClass::nonfinite_grad);
    EXPECT_EQ(report.param, "head.bias");
    EXPECT_EQ(report.first->element, 7);
    EXPECT_EQ(report.began_in, record::BeganIn::backward);
  }
  const auto& order = reports_[2].order;
  ASSERT_EQ(order.size(), 3U);
  EXPECT_EQ(order[0].run_step, 1);
  EXPECT_EQ(order[1].site, Site::loss);
  EXPECT_EQ(order[1].run_step, 2);
  EXPECT_EQ(order[2].run_step, 3);
  EXPECT_EQ(order[2].param, "embedding.weight");
  EXPECT_EQ(reports_[2].steps, 3);
  EXPECT_EQ(
      reports_[2].evidence,
      "Step 1: the gradient of head.bias became nan at element 7 (1 NaN, 0 +Inf, 0 -Inf in "
      "that step). The loss was finite: it began in the backward pass. Step 2: the loss became "
      "nan too. Step 3: the weight of embedding.weight became pos_inf at element 2 too.");
}

TEST_F(NonfiniteTest, ItClosesWhenEverySiteThatJoinedIsClean) {
  observe(read(Site::grad, 1));
  observe(read(Site::loss, 1));
  observe(read(Site::weight, 1));
  observe_clean(Site::grad, 3 * kClearAfter);
  observe_clean(Site::loss, kClearAfter);
  EXPECT_EQ(reports_.size(), 3U);
  observe_clean(Site::weight, NonfiniteDetector::kWeightsClearAfter);
  ASSERT_EQ(reports_.size(), 4U);
  EXPECT_TRUE(reports_[3].closed_at);
  EXPECT_EQ(reports_[3].steps, 3);
}

TEST_F(NonfiniteTest, WhereItBeganIsSaidOnlyWhereTheSitesBeforeItAreKnownToBeFinite) {
  struct Case {
    Site site;
    bool loss_read;
    bool grad_read;
    std::optional<record::BeganIn> began;
  };
  for (const Case& a_case : {Case{Site::grad, false, true, std::nullopt},
                             Case{Site::grad, true, true, record::BeganIn::backward},
                             Case{Site::weight, true, true, record::BeganIn::update},
                             Case{Site::weight, true, false, std::nullopt},
                             Case{Site::weight, false, true, std::nullopt},
                             Case{Site::loss, true, false, record::BeganIn::forward}}) {
    IncidentIds ids;
    std::optional<Incident> seen;
    NonfiniteDetector detector(0, kAllSites, ids,
                               [&](const Incident& incident) { seen = incident; });
    StepRecord step = read(a_case.site, 1);
    if (a_case.loss_read) step.site_measured[at(Site::loss)] = true;
    if (a_case.grad_read) step.site_measured[at(Site::grad)] = true;
    detector.observe(step, model_);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->began_in, a_case.began);
  }
}

TEST_F(NonfiniteTest, ABadStepWhoseRecordWasLostOpensAnIncidentThatSaysSo) {
  observe_clean(Site::grad, 3);
  StepRecord after = read(Site::grad, 0);
  after.dropped_before = 4;
  after.nonfinite_steps_total[at(Site::grad)] = 2;
  observe(after);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].kind, IncidentClass::nonfinite_grad);
  EXPECT_EQ(reports_[0].steps, 2);
  EXPECT_FALSE(reports_[0].first);
  EXPECT_EQ(
      reports_[0].evidence,
      "Step 4 or before: the gradient became non-finite in 2 steps whose own records were lost.");
  StepRecord next = read(Site::grad, 0);
  next.nonfinite_steps_total[at(Site::grad)] = 2;
  for (int i = 0; i < kClearAfter; ++i) observe(next);
  EXPECT_EQ(reports_.size(), 2U) << "the same totals are no news";
}

TEST_F(NonfiniteTest, TotalsThatCountOneStepTwiceAreNoLostSteps) {
  StepRecord reread = read(Site::grad, 0);
  reread.nonfinite_steps_total[at(Site::grad)] = 1;
  observe(reread);
  EXPECT_TRUE(reports_.empty()) << "no record was lost";
}

TEST_F(NonfiniteTest, TheMicroStepIsToldOfALoss) {
  StepRecord step = read(Site::loss, 1);
  step.micro_steps = 4;
  step.bad_micro_step = 3;
  observe(step);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].micro_step, 3);
}

TEST_F(NonfiniteTest, TheModuleOfAWatchedStepIsAddedOnce) {
  detector_.trace_found({"layers.3", "Linear", false, 9});
  EXPECT_TRUE(reports_.empty()) << "nothing is open";
  observe(read(Site::loss, 1));
  detector_.trace_found({"layers.3", "Linear", false, 2});
  detector_.trace_found({"layers.4", "Linear", false, 3});
  ASSERT_EQ(reports_.size(), 2U);
  ASSERT_TRUE(reports_[1].module);
  EXPECT_EQ(reports_[1].module->name, "layers.3");
  EXPECT_THAT(
      reports_[1].evidence,
      testing::EndsWith("Watched in step 2: the first module whose output was not finite is "
                        "layers.3 (Linear)."));
}

TEST_F(NonfiniteTest, TheModuleThatIsKnownBeforeItsStepJoinsTheIncidentThatTheStepOpens) {
  detector_.trace_found({"layers.3", "Linear", true, 1});
  observe(read(Site::grad, 1));
  ASSERT_EQ(reports_.size(), 1U);
  ASSERT_TRUE(reports_[0].module);
  EXPECT_EQ(reports_[0].module->name, "layers.3");
  EXPECT_THAT(reports_[0].evidence, testing::EndsWith("whose gradient was not finite is layers.3 "
                                                      "(Linear)."));
}

TEST_F(NonfiniteTest, TheModuleOfAStepThatOpensNothingIsForgotten) {
  detector_.trace_found({"layers.3", "Linear", true, 1});
  observe(read(Site::grad, 0));
  observe(read(Site::grad, 1));
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_FALSE(reports_[0].module);
}

TEST(WordsForAModule, SayWhatItHasToDoWithIt) {
  const auto told = [](record::TracedAt at, bool is_backward) {
    return describe_module({"head", "Linear", is_backward, 2, at, 1});
  };
  EXPECT_THAT(told(record::TracedAt::weight, false),
              testing::HasSubstr("head (Linear), one of whose weights"));
  EXPECT_THAT(told(record::TracedAt::input, false),
              testing::HasSubstr("the input of head (Linear)"));
  EXPECT_THAT(told(record::TracedAt::loss, false),
              testing::HasSubstr("outputs of all modules were finite"));
  EXPECT_THAT(told(record::TracedAt::loss, true),
              testing::HasSubstr("the gradient that the loss sent"));
}

TEST_F(NonfiniteTest, ASiteThatIsSwitchedOffIsNotJudged) {
  NonfiniteDetector detector(0, {true, false, true}, ids_,
                             [this](const Incident& incident) { reports_.push_back(incident); });
  detector.observe(read(Site::grad, 5), model_);
  EXPECT_TRUE(reports_.empty());
  detector.observe(read(Site::loss, 1), model_);
  EXPECT_EQ(reports_.size(), 1U);
}

TEST_F(NonfiniteTest, AScalerThatSkippedForABadLossIsNoExcuse) {
  StepRecord step = read(Site::loss, 1);
  step.first_by_site[at(Site::loss)] = {Site::loss, NonfiniteKind::nan, -1, 0};
  step.skipped = record::SkipReason::amp_overflow;
  observe(step);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_THAT(reports_[0].evidence, testing::HasSubstr("the loss is not scaled: no overflow"));
}

TEST_F(NonfiniteTest, AStepThatDidNotReadTheSiteIsNeitherGoodNorBad) {
  observe(read(Site::weight, 1));
  for (int i = 0; i < 500; ++i) observe(read(Site::grad, 0));
  for (int i = 0; i < 500; ++i) observe(unread());
  EXPECT_EQ(reports_.size(), 1U);
  StepRecord unmeasured = read(Site::weight, 9);
  unmeasured.site_measured[at(Site::weight)] = std::nullopt;
  observe(unmeasured);
  unmeasured.site_measured[at(Site::weight)] = false;
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

  overflow.site_measured[at(Site::loss)] = true;
  overflow.nonfinite[at(Site::loss)] = {1, 0, 0};
  observe(overflow);
  ASSERT_EQ(reports_.size(), 3U);
  EXPECT_EQ(reports_[2].kind, IncidentClass::nonfinite_loss);
}

TEST_F(NonfiniteTest, AStepThatTheGovernorSkippedIsBadAllTheSame) {
  StepRecord skipped = read(Site::grad, 1);
  skipped.skipped = record::SkipReason::governor;
  observe(skipped);
  EXPECT_EQ(reports_.size(), 1U);
}

TEST_F(NonfiniteTest, NumbersThatAreNanThemselvesNeitherThrowNorDecide) {
  const std::vector<void (*)(StepRecord&)> poisons = {
      [](StepRecord& s) { s.time = kNan; },
      [](StepRecord& s) { s.loss = kNan; },
      [](StepRecord& s) { s.grad_norm = kNan; },
      [](StepRecord& s) { s.grad_norm_at_step = kNan; },
      [](StepRecord& s) { s.grad_abs_max = kNan; },
      [](StepRecord& s) { s.clip_coefficient = kNan; },
      [](StepRecord& s) { s.loss_scale = kNan; },
      [](StepRecord& s) { s.grad_health = kNan; },
      [](StepRecord& s) { s.weight_norm = kNan; },
      [](StepRecord& s) { s.update_ratio = kNan; },
      [](StepRecord& s) { s.lr.fill(kNan); },
      [](StepRecord& s) { s.user.fill(kNan); },
      [](StepRecord& s) { s.step_seconds = kNan; },
      [](StepRecord& s) { s.phase_seconds.fill(kNan); },
      [](StepRecord& s) { s.agent_seconds = kNan; },
      [](StepRecord& s) { s.tokens = kNan; },
  };
  for (const auto poison : poisons) {
    StepRecord clean = read(Site::grad, 0);
    poison(clean);
    EXPECT_NO_THROW(observe(clean));
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
    IncidentIds ids;
    NonfiniteDetector detector(0, kAllSites, ids,
                               [&](const Incident& incident) { reports_.push_back(incident); });
    StepRecord step = read(Site::grad, 1);
    step.first_by_site[at(Site::grad)] = {Site::grad, NonfiniteKind::nan, param, 0};
    detector.observe(step, model_);
    ASSERT_EQ(reports_.size(), 1U);
    EXPECT_EQ(reports_[0].param, "");
    EXPECT_THAT(reports_[0].evidence, testing::HasSubstr("the gradient became nan at element 0"));
    reports_.clear();
  }
}

TEST_F(NonfiniteTest, TheLossHasNoElement) {
  StepRecord step = read(Site::loss, 1);
  step.first_by_site[at(Site::loss)] = {Site::loss, NonfiniteKind::nan, -1, 0};
  observe(step);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].evidence,
            "Step 1: the loss became nan (1 NaN, 0 +Inf, 0 -Inf in that step).");
}

TEST_F(NonfiniteTest, AReportThatThrowsIsNotRepeated) {
  int reports = 0;
  IncidentIds ids;
  NonfiniteDetector detector(0, kAllSites, ids, [&](const Incident&) {
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
