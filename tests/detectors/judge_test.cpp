#include "detectors/judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "record/names.hpp"
#include "record/numbers.hpp"
#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using record::Site;
using record::SkipReason;
using record::StepRecord;
using test::kInfinity;
using test::kNan;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> judged_by(std::string_view text) {
  Judged judged{};
  EXPECT_EQ(parse_judged(text, judged), "") << text;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < judged.size(); ++i)
    if (judged[i]) names.emplace_back(record::kNames<record::IncidentClass>[i]);
  return names;
}

TEST(ParseJudged, DefaultIsAllButTheHealthScore) {
  EXPECT_THAT(judged_by("all"), SizeIs(record::kIncidentClasses));
  const auto usual = judged_by("default");
  EXPECT_THAT(usual, SizeIs(record::kIncidentClasses - 1));
  EXPECT_THAT(usual, testing::Not(testing::Contains("grad_health")));
}

TEST(ParseJudged, WordsAddAndTakeAwayInTheirOrder) {
  EXPECT_THAT(judged_by("none"), IsEmpty());
  EXPECT_THAT(judged_by("stalled, loss_spike"), ElementsAre("loss_spike", "stalled"));
  EXPECT_THAT(judged_by("loss_spike,-loss_spike"), IsEmpty());
  EXPECT_THAT(judged_by("default,-loss_spike,grad_health"), SizeIs(record::kIncidentClasses - 1));
  EXPECT_THAT(judged_by("-all,stalled"), ElementsAre("stalled"));
}

TEST(ParseJudged, ThePresetOfAPanicHasWhatARollbackFollowsFrom) {
  EXPECT_THAT(judged_by("panic_v1"),
              ElementsAre("nonfinite_loss", "loss_divergence", "random_guess", "rollback"));
  EXPECT_THAT(judged_by("panic_v1,-rollback,stalled"), SizeIs(4));
}

TEST(ParseJudged, AnythingElseIsRefusedAndChangesNothing) {
  for (const char* text : {"", "loss", "default,", ",", "-", "--all", "-none", "-default", "ALL"}) {
    Judged judged{};
    judged[3] = true;
    EXPECT_NE(parse_judged(text, judged), "") << text;
    EXPECT_TRUE(judged[3]);
  }
}

class JudgeTest : public test::FakeSteps {
 protected:
  JudgeTest() {
    EXPECT_EQ(parse_judged("all", settings_.judged), "");
    model_.id = 1;
    model_.params.resize(1);
    model_.params[0].name = "w";
    model_.groups = {"g"};
    detail_.groups.resize(1);
  }
  StepRecord healthy(std::int32_t optimizer = 0) {
    StepRecord step = next();
    step.optimizer = optimizer;
    step.loss = 2;
    step.grad_norm = 1;
    step.grad_health = 1;
    step.params[index_of(record::ParamState::finite)] = 1;
    step.site_measured.fill(true);
    step.step_seconds = 0.1;
    return step;
  }
  void observe(const StepRecord& step) {
    if (!judge_) judge_.emplace(1, settings_, collect());
    judge_->observe(step, detail_, model_, step);
  }
  void observe_healthy(int times, std::int32_t optimizer = 0) {
    for (int i = 0; i < times; ++i) observe(healthy(optimizer));
  }
  [[nodiscard]] std::vector<IncidentClass> opened() const {
    std::vector<IncidentClass> kinds;
    for (const record::Incident& incident : reports_)
      if (!incident.closed_at) kinds.push_back(incident.kind);
    return kinds;
  }

  Settings settings_;
  record::ModelInfo model_;
  record::StepDetail detail_;
  std::optional<Judge> judge_;
};

TEST_F(JudgeTest, AHealthyRunHasNoIncident) {
  observe_healthy(5000);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(JudgeTest, ARunWhereEverythingIsNanIsOneIncident) {
  observe_healthy(50);
  for (int i = 0; i < 10'000; ++i) {
    StepRecord step = healthy();
    step.loss = step.grad_norm = step.weight_norm = step.grad_abs_max = kNan;
    step.grad_health = 0;
    step.vanishing = 0;
    step.exploding = 1;
    for (auto& counts : step.nonfinite) counts = {1, 0, 0};
    step.skipped = i % 2 == 0 ? SkipReason::loop : SkipReason::none;
    observe(step);
  }
  ASSERT_THAT(opened(), SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::nonfinite_loss);
  EXPECT_THAT(reports_[0].order, SizeIs(3));
}

TEST_F(JudgeTest, ThresholdsThatChangeHoldFromTheNextStepOn) {
  observe_healthy(50);
  const auto observe_high = [&] {
    for (int i = 0; i < NormRules::kInARow; ++i) {
      StepRecord step = healthy();
      step.grad_norm = 5;
      observe(step);
    }
  };
  observe_high();
  EXPECT_THAT(opened(), IsEmpty()) << "five times the median";
  settings_.norm.factor = 4;
  judge_->change(settings_, next());
  observe_high();
  EXPECT_THAT(opened(), ElementsAre(IncidentClass::grad_exploding));
}

TEST_F(JudgeTest, AClassThatIsJudgedNoMoreHasItsOpenIncidentClosed) {
  observe_healthy(50);
  const auto observe_bad = [&] {
    StepRecord step = healthy();
    step.loss = kNan;
    step.nonfinite[index_of(Site::loss)] = {1, 0, 0};
    observe(step);
  };
  observe_bad();
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(parse_judged("all,-nonfinite_loss", settings_.judged), "");
  judge_->change(settings_, next());
  observe_bad();
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_TRUE(reports_[1].closed_at);
  observe_bad();
  EXPECT_THAT(reports_, SizeIs(2)) << "and none opens";
}

TEST_F(JudgeTest, AnOpenIncidentOfARuleThatIsNotJudgedAnyMoreEndsAndIsForgotten) {
  observe_healthy(50);
  for (int i = 0; i < NormRules::kInARow; ++i) {
    StepRecord step = healthy();
    step.grad_norm = 50;
    observe(step);
  }
  ASSERT_THAT(opened(), ElementsAre(IncidentClass::grad_exploding));
  ASSERT_TRUE(judge_->may_diverge());
  EXPECT_EQ(parse_judged("all,-grad_exploding", settings_.judged), "");
  judge_->change(settings_, next());
  EXPECT_TRUE(reports_.back().closed_at);
  EXPECT_FALSE(judge_->may_diverge()) << "snapshots are taken again";
}

TEST_F(JudgeTest, WhatIsOpenIsToldWithItsStepsSoFarAndWhatHasClosedIsNot) {
  observe_healthy(50);
  for (int i = 0; i < 40; ++i) {
    StepRecord bad = healthy();
    bad.nonfinite[index_of(Site::grad)] = {1, 0, 0};
    bad.dropped_before = i == 0 ? 1 : 0;
    observe(bad);
  }
  std::vector<record::Incident> open;
  const auto look = [&] {
    open.clear();
    judge_->tell_open([&](const record::Incident& incident) { open.push_back(incident); });
  };
  look();
  ASSERT_THAT(open, SizeIs(2));
  EXPECT_EQ(open[0].kind, IncidentClass::nonfinite_grad);
  EXPECT_EQ(open[0].steps, 40);
  EXPECT_EQ(open[0].last_step, 90);
  EXPECT_EQ(open[1].kind, IncidentClass::data_dropped);
  observe_healthy(200);
  look();
  EXPECT_THAT(open, IsEmpty());
}

TEST_F(JudgeTest, NumbersOfIncidentsAreOneSequence) {
  observe_healthy(50);
  StepRecord bad = healthy();
  bad.nonfinite[index_of(Site::grad)] = {1, 0, 0};
  bad.dropped_before = 2;
  observe(bad);
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[0].id, 1);
  EXPECT_EQ(reports_[1].id, 2);
  EXPECT_EQ(reports_[1].kind, IncidentClass::data_dropped);
}

TEST_F(JudgeTest, TwoOptimizersAreComparedWithThemselvesOnly) {
  for (int i = 0; i < 300; ++i) {
    observe_healthy(1, 0);
    StepRecord other = healthy(1);
    other.loss = 500;
    other.grad_norm = 1000;
    observe(other);
  }
  EXPECT_THAT(reports_, IsEmpty());
  for (int i = 0; i < 50; ++i) {
    observe_healthy(1, 0);
    StepRecord other = healthy(1);
    other.loss = 5000;
    other.grad_norm = 1000;
    observe(other);
  }
  EXPECT_THAT(opened(), ElementsAre(IncidentClass::loss_divergence))
      << "good losses of the one do not close what the other has open";
}

TEST_F(JudgeTest, GradientsOfASkippedStepAreNotCompared) {
  observe_healthy(50);
  for (int i = 0; i < 5; ++i) {
    StepRecord overflow = healthy();
    overflow.skipped = SkipReason::amp_overflow;
    overflow.grad_norm = 1e9;
    overflow.nonfinite[index_of(Site::grad)] = {0, 1, 0};
    observe(overflow);
    StepRecord dropped = healthy();
    dropped.skipped = SkipReason::loop;
    dropped.loss = 1e9;
    dropped.grad_norm = 1e9;
    observe(dropped);
  }
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(JudgeTest, ARelapseBehindARollbackOpensAtOnce) {
  settings_.cooldown_seconds = 0;
  for (const bool goes_back : {true, false}) {
    judge_.reset();
    reports_.clear();
    observe_healthy(100);
    const auto is_bad = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        StepRecord step = healthy();
        step.loss = 100;
        step.grad_norm = 100;
        step.nonfinite[index_of(Site::weight)] = {1, 0, 0};
        observe(step);
      }
    };
    is_bad(3);
    const std::vector<IncidentClass> first = opened();
    EXPECT_THAT(first, testing::UnorderedElementsAre(IncidentClass::loss_divergence,
                                                     IncidentClass::grad_exploding,
                                                     IncidentClass::nonfinite_weight));
    reports_.clear();
    if (goes_back) judge_->rolled_back({.run_step = 103, .to_step = 90}, healthy());
    EXPECT_EQ(judge_->may_diverge(), !goes_back);
    is_bad(2);
    using Kinds = std::vector<IncidentClass>;
    EXPECT_EQ(opened(), goes_back
                            ? (Kinds{IncidentClass::rollback, IncidentClass::nonfinite_weight})
                            : Kinds{})
        << "the rows of loss and norm begin again";
    is_bad(1);
    EXPECT_EQ(opened().size(), goes_back ? 4U : 0U)
        << "without a rollback they are the same incidents";
  }
}

TEST_F(JudgeTest, WithoutAStepForLongItHasStalled) {
  settings_.stall_seconds = 60;
  observe_healthy(1);
  judge_->tick({0, 2000, 62.5});
  EXPECT_THAT(opened(), ElementsAre(IncidentClass::stalled));
}

TEST_F(JudgeTest, WhatIsNotOnTheListIsNotJudged) {
  settings_.judged.fill(false);
  settings_.stall_seconds = 1;
  settings_.loss.random_guess = 2.3;
  settings_.syncs.training = 0;
  observe_healthy(30);
  for (int i = 0; i < 300; ++i) {
    StepRecord bad = healthy();
    bad.loss = i % 3 == 0 ? kNan : i % 3 == 1 ? 2.3 : 1e9;
    bad.grad_norm = kInfinity;
    bad.grad_health = 0;
    bad.vanishing = 1;
    bad.dropped_before = 1;
    bad.agent_seconds = 0.05;
    for (auto& counts : bad.nonfinite) counts = {1, 1, 1};
    bad.skipped = i % 2 == 0 ? SkipReason::amp_overflow : SkipReason::none;
    bad.overflow_persists = true;
    bad.syncs.emplace().calls[0][0] = 9;
    bad.syncs->calls[1][0] = 9;
    observe(bad);
    judge_->observe_syncs(bad,
                          [](record::SyncOrigin) { return std::vector<record::StepSyncSite>{}; });
    judge_->tick({0, 1e6, 1e6});
  }
  EXPECT_THAT(reports_, IsEmpty());
}

/// The numbers of a step, whatever they are, are never what brings the judge down.
TEST_F(JudgeTest, NoNumberMakesItThrowOrForgetWhatIsNormal) {
  observe_healthy(300);
  for (const double poison : {kNan, kInfinity, -kInfinity, 1e308, -1e308, 0.0, -0.0, 5e-324}) {
    for (const record::StepNumber& number : record::kStepNumbers) {
      if (number.stored == nullptr) continue;
      StepRecord step = healthy();
      step.*number.stored = poison;
      EXPECT_NO_THROW(observe(step));
      observe_healthy(1);
    }
  }
  reports_.clear();
  observe_healthy(100);
  reports_.clear();
  for (int i = 0; i < 3; ++i) {
    StepRecord step = healthy();
    step.loss = 50;
    step.grad_norm = 50;
    observe(step);
  }
  EXPECT_THAT(opened(), ElementsAre(IncidentClass::loss_divergence, IncidentClass::grad_exploding));
}

}  // namespace
}  // namespace gradvane::detectors
