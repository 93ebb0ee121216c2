// What came first, what followed, and what is told of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "detectors/nonfinite.hpp"
#include "detectors/nonfinite_words.hpp"
#include "tests/detectors/nonfinite_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::Incident;
using record::IncidentClass;
using record::NonfiniteKind;
using record::Site;
using record::StepRecord;
using test::kSites;
using testing::HasSubstr;
using testing::Not;

using NonfiniteOrderTest = test::NonfiniteSteps;

TEST_F(NonfiniteOrderTest, SitesThatGoBadTogetherAreOneIncidentInTheOrderOfAStep) {
  StepRecord all = unread();
  for (const Site site : kSites) {
    all.site_measured[index_of(site)] = true;
    all.nonfinite[index_of(site)] = {1, 0, 0};
  }
  observe(all);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].kind, IncidentClass::nonfinite_loss);
  EXPECT_EQ(reports_[0].began_in, record::BeganIn::forward);
  ASSERT_EQ(reports_[0].order.size(), 3U);
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(reports_[0].order[s].site, kSites[s]);
  EXPECT_EQ(reports_[0].steps, 1);
}

TEST_F(NonfiniteOrderTest, WithOtherRanksABadGradientBeganInTheBackwardPassOnlyIfThatIsKnown) {
  const auto first_report = [&](bool is_alone, std::optional<std::int32_t> from, bool is_loss) {
    std::optional<Incident> seen;
    IncidentBook book;
    NonfiniteDetector detector(0, is_alone, book, [&](const Incident& report) { seen = report; });
    StepRecord step = read(Site::grad, 5);
    step.site_measured[index_of(Site::loss)] = true;
    step.first_bad_rank = from;
    step.first_bad_loss = is_loss;
    detector.observe(step, model_);
    return seen.value();
  };
  const Incident alone = first_report(true, {}, false);
  EXPECT_EQ(alone.began_in, record::BeganIn::backward);
  EXPECT_THAT(alone.evidence, HasSubstr("The loss was finite: it began in the backward pass."));
  const Incident spread = first_report(false, {}, false);
  EXPECT_EQ(spread.began_in, std::nullopt);
  EXPECT_THAT(spread.evidence, HasSubstr("in a backward pass, or with another rank's loss."));
  const Incident by_loss = first_report(false, 3, true);
  EXPECT_EQ(by_loss.began_in, record::BeganIn::forward);
  EXPECT_THAT(by_loss.evidence, HasSubstr("It comes from rank 3, whose loss was not finite."));
  EXPECT_THAT(by_loss.evidence, Not(HasSubstr("backward")));
  const Incident by_gradient = first_report(false, 3, false);
  EXPECT_EQ(by_gradient.began_in, record::BeganIn::backward);
  EXPECT_THAT(by_gradient.evidence, HasSubstr("backward pass. It comes from rank 3."));
}

TEST_F(NonfiniteOrderTest, WhatGoesBadLaterJoinsTheIncidentWithItsStepAndItsBlame) {
  StepRecord first = read(Site::grad, 1);
  first.site_measured[index_of(Site::loss)] = true;
  first.first_by_site[index_of(Site::grad)] = {Site::grad, NonfiniteKind::nan, 1, 7};
  observe(first);
  StepRecord second = read(Site::loss, 1);
  second.first_by_site[index_of(Site::loss)] = {Site::loss, NonfiniteKind::nan, -1, 0};
  observe(second);
  StepRecord third = read(Site::weight, 3);
  third.first_by_site[index_of(Site::weight)] = {Site::weight, NonfiniteKind::pos_inf, 0, 2};
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
      "nan too. Step 3: the weight of embedding.weight was found pos_inf at element 2 too. The "
      "weights had not been read before.");
}

TEST_F(NonfiniteOrderTest, AWeightIsDatedFromTheReadBeforeOfTheSameOptimizer) {
  observe_clean(Site::weight, 1);  // step 1
  StepRecord other = read(Site::weight, 0);
  other.optimizer = 1;
  observe(other);  // step 2
  observe_clean(Site::grad, 3);
  observe(read(Site::weight, 1));  // step 6
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].order[0].last_finite, 1);
  EXPECT_EQ(reports_[0].began_in, std::nullopt) << "it may have been bad for four steps";
  EXPECT_THAT(reports_[0].evidence,
              testing::HasSubstr("The weights were last read, and finite, at step 1."));
}

TEST_F(NonfiniteOrderTest, AWeightThatWasFiniteAStepBeforeBecameBad) {
  observe_clean(Site::weight, 3);
  StepRecord bad = read(Site::weight, 1);
  for (const Site site : {Site::loss, Site::grad}) bad.site_measured[index_of(site)] = true;
  observe(bad);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].began_in, record::BeganIn::update);
  EXPECT_THAT(reports_[0].evidence, testing::HasSubstr(" became "));
  EXPECT_THAT(reports_[0].evidence, testing::Not(testing::HasSubstr("last read")));
}

TEST_F(NonfiniteOrderTest, ItClosesWhenEverySiteThatJoinedIsClean) {
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

TEST_F(NonfiniteOrderTest, WhereItBeganIsSaidOnlyWhereTheSitesBeforeItAreKnownToBeFinite) {
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
    IncidentBook book;
    std::optional<Incident> seen;
    NonfiniteDetector detector(0, true, book, [&](const Incident& incident) { seen = incident; });
    detector.observe(read(Site::weight, 0), model_);
    StepRecord step = read(a_case.site, 1);
    if (a_case.loss_read) step.site_measured[index_of(Site::loss)] = true;
    if (a_case.grad_read) step.site_measured[index_of(Site::grad)] = true;
    detector.observe(step, model_);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->began_in, a_case.began);
  }
}

TEST_F(NonfiniteOrderTest, ABadStepWhoseRecordWasLostOpensAnIncidentThatSaysSo) {
  observe_clean(Site::grad, 3);
  StepRecord after = read(Site::grad, 0);
  after.dropped_before = 4;
  after.nonfinite_steps_total[index_of(Site::grad)] = 2;
  observe(after);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].kind, IncidentClass::nonfinite_grad);
  EXPECT_EQ(reports_[0].steps, 2);
  EXPECT_FALSE(reports_[0].first);
  EXPECT_EQ(
      reports_[0].evidence,
      "Step 4 or before: the gradient became non-finite in 2 steps whose own records were lost.");
  StepRecord next = read(Site::grad, 0);
  next.nonfinite_steps_total[index_of(Site::grad)] = 2;
  for (int i = 0; i < kClearAfter; ++i) observe(next);
  EXPECT_EQ(reports_.size(), 2U) << "the same totals are no news";
}

TEST_F(NonfiniteOrderTest, TotalsThatCountOneStepTwiceAreNoLostSteps) {
  StepRecord reread = read(Site::grad, 0);
  reread.nonfinite_steps_total[index_of(Site::grad)] = 1;
  observe(reread);
  EXPECT_TRUE(reports_.empty()) << "no record was lost";
}

TEST_F(NonfiniteOrderTest, TheMicroStepIsToldOfALoss) {
  StepRecord step = read(Site::loss, 1);
  step.micro_steps = 4;
  step.bad_micro_step = 3;
  observe(step);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].micro_step, 3);
}

TEST_F(NonfiniteOrderTest, TheModuleOfAWatchedStepIsAddedOnce) {
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

TEST_F(NonfiniteOrderTest, TheModuleThatIsKnownBeforeItsStepJoinsTheIncidentThatTheStepOpens) {
  detector_.trace_found({"layers.3", "Linear", true, 1});
  observe(read(Site::grad, 1));
  ASSERT_EQ(reports_.size(), 1U);
  ASSERT_TRUE(reports_[0].module);
  EXPECT_EQ(reports_[0].module->name, "layers.3");
  EXPECT_THAT(reports_[0].evidence, testing::EndsWith("whose gradient was not finite is layers.3 "
                                                      "(Linear)."));
}

TEST_F(NonfiniteOrderTest, TheModuleOfAStepThatOpensNothingIsForgotten) {
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

TEST_F(NonfiniteOrderTest, ASiteThatIsSwitchedOffIsNotJudged) {
  Judged judged = default_judged();
  judged[index_of(IncidentClass::nonfinite_grad)] = false;
  IncidentBook book(judged);
  NonfiniteDetector detector(0, true, book,
                             [this](const Incident& incident) { reports_.push_back(incident); });
  detector.observe(read(Site::grad, 5), model_);
  EXPECT_TRUE(reports_.empty());
  detector.observe(read(Site::loss, 1), model_);
  EXPECT_EQ(reports_.size(), 1U);
}

TEST_F(NonfiniteOrderTest, AScalerThatSkippedForABadLossIsNoExcuse) {
  StepRecord step = read(Site::loss, 1);
  step.first_by_site[index_of(Site::loss)] = {Site::loss, NonfiniteKind::nan, -1, 0};
  step.skipped = record::SkipReason::amp_overflow;
  observe(step);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_THAT(reports_[0].evidence, testing::HasSubstr("the loss is not scaled: no overflow"));
}

}  // namespace
}  // namespace gradvane::detectors
