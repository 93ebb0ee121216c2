#include "detectors/rules/loss_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "tests/detectors/fake_steps.hpp"

namespace gradvane::detectors {
namespace {

using record::IncidentClass;
using test::kInfinity;
using test::kNan;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class LossRulesTest : public test::FakeSteps {
 protected:
  LossRules& rules() {
    if (!rules_) rules_.emplace(2, settings_, 0, book_, collect());
    return *rules_;
  }
  void observe(std::optional<double> loss) {
    record::StepRecord step = next();
    step.loss = loss;
    rules().observe(step);
  }
  void observe(std::initializer_list<double> losses) {
    for (const double loss : losses) observe(std::optional(loss));
  }
  void observe_many(double loss, int times) {
    for (int i = 0; i < times; ++i) observe(std::optional(loss));
  }
  void start_anew() {
    rules_.reset();
    reports_.clear();
  }
  /// Mean 2, standard deviation 0.1.
  void learn(int times = 20) {
    for (int i = 0; i < times; ++i) observe(std::optional(i % 2 == 0 ? 1.9 : 2.1));
  }

  LossSettings settings_;

 private:
  std::optional<LossRules> rules_;
};

TEST_F(LossRulesTest, ThreeOutliersInARowAreADivergenceThatBeganWithTheFirst) {
  learn();
  observe({6.5, 7.0});
  EXPECT_THAT(reports_, IsEmpty());
  observe({6.8});
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::loss_divergence);
  EXPECT_EQ(reports_[0].rank, 2);
  EXPECT_EQ(reports_[0].first_step, 21);
  EXPECT_EQ(reports_[0].last_step, 23);
  EXPECT_EQ(reports_[0].steps, 3);
  EXPECT_EQ(
      reports_[0].evidence,
      "Step 21: the loss rose to 7 and stayed up for 3 steps; the mean before was 2, the limit "
      "6 (loss_ratio).");
}

TEST_F(LossRulesTest, FewerAreASpikeThatIsToldOnceItIsOver) {
  learn();
  observe({50, 40});
  EXPECT_THAT(reports_, IsEmpty());
  observe({2.0});
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_EQ(reports_[0].kind, IncidentClass::loss_spike);
  EXPECT_EQ(reports_[0].first_step, 21);
  EXPECT_EQ(reports_[0].last_step, 22);
  EXPECT_EQ(reports_[0].steps, 2);
  EXPECT_THAT(reports_[0].evidence, HasSubstr("a loss of 50, and back"));
  EXPECT_TRUE(reports_[1].closed_at) << "it is over already";
}

TEST_F(LossRulesTest, AllThreeBoundsHaveToBeExceeded) {
  settings_.absolute = 12.0;
  learn();  // by deviation above 2.6, by ratio above 6
  for (int i = 0; i < 10; ++i) observe({2.7, 2.0, 5.9, 2.0, 11.9, 2.0});
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LossRulesTest, TheHighestBoundIsTheOneThatIsNamed) {
  const auto evidence_with = [&](double sigma, double ratio, std::optional<double> absolute) {
    settings_.sigma = sigma;
    settings_.ratio = ratio;
    settings_.absolute = absolute;
    start_anew();
    learn();
    observe({90, 90, 90});
    return reports_.size() == 1 ? reports_[0].evidence : "not one report";
  };
  EXPECT_THAT(evidence_with(6, 3, 12.0), HasSubstr("the limit 12 (loss_absolute)."));
  EXPECT_THAT(evidence_with(6, 3, {}), HasSubstr("the limit 6 (loss_ratio)."));
  EXPECT_THAT(evidence_with(400, 3, {}), HasSubstr(" (loss_sigma)."));
  // A loss that stays where it is has no deviation.
  settings_.sigma = 1;
  settings_.ratio = 1.01;
  settings_.absolute.reset();
  start_anew();
  observe_many(2, 20);
  observe({90, 90, 90});
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_THAT(reports_[0].evidence, HasSubstr("the limit 2.1 (the loss at the start)."));
}

TEST_F(LossRulesTest, WithNineLossesNothingIsJudgedWithTenItIs) {
  learn(9);
  observe({100, 100, 100});
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LossRulesTest, WithTenLossesItIs) {
  learn(10);
  observe({100, 100, 100});
  EXPECT_THAT(reports_, SizeIs(1));
}

TEST_F(LossRulesTest, OutliersNeverBecomeTheBaseline) {
  learn();
  observe_many(100, 900);  // one incident
  observe({7, 2, 7, 2});   // still far above: judged against what was before
  ASSERT_THAT(reports_, testing::Not(IsEmpty()));
  EXPECT_EQ(reports_[0].kind, IncidentClass::loss_divergence);
  const auto spikes = std::count_if(reports_.begin(), reports_.end(), [](const auto& incident) {
    return incident.kind == IncidentClass::loss_spike && !incident.closed_at;
  });
  EXPECT_EQ(spikes, 1) << "the 7 between two normal ones; the one before belongs to the divergence";
}

TEST_F(LossRulesTest, ARunOnAnotherLevelIsToldOnceAndThenTakenForGranted) {
  learn();
  observe_many(100, LossRules::kSettleAfter + 200);
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_FALSE(reports_[0].closed_at);
  EXPECT_TRUE(reports_[1].closed_at);
  EXPECT_GE(reports_[1].steps, LossRules::kSettleAfter - 1);
  observe({1000, 1000, 1000});
  EXPECT_THAT(reports_, SizeIs(3)) << "and judged by that";
}

TEST_F(LossRulesTest, ADivergenceClosesAfterTenNormalLosses) {
  learn();
  observe({50, 50, 50});
  observe_many(2, LossRules::kCloseAfter - 1);
  EXPECT_THAT(reports_, SizeIs(1));
  observe({2});
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_TRUE(reports_[1].closed_at);
}

TEST_F(LossRulesTest, NonFiniteLossesNeitherCountNorBreakARow) {
  learn();
  observe({50, kNan, 50, kInfinity, -kInfinity, 50});
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::loss_divergence);
  EXPECT_EQ(reports_[0].first_step, 21);
}

TEST_F(LossRulesTest, ALossAtEveryPositionMayBeNonFiniteAndTheBaselineStays) {
  for (int position = 0; position < 30; ++position) {
    IncidentBook book;
    std::vector<record::Incident> seen;
    LossRules rules(0, settings_, 0, book, [&](const auto& incident) { seen.push_back(incident); });
    for (int i = 0; i < 30; ++i) {
      record::StepRecord step = next();
      step.loss = i == position ? (i % 3 == 0   ? kNan
                                   : i % 3 == 1 ? kInfinity
                                                : -kInfinity)
                                : (i % 2 == 0 ? 1.9 : 2.1);
      rules.observe(step);
    }
    EXPECT_THAT(seen, IsEmpty()) << position;
    for (const double loss : {50.0, 50.0, 50.0}) {
      record::StepRecord step = next();
      step.loss = loss;
      rules.observe(step);
    }
    EXPECT_THAT(seen, SizeIs(1)) << position;
  }
}

TEST_F(LossRulesTest, AMeanBelowZeroIsJudgedByItsMagnitude) {
  // mean -5: the bound is -5 + 2 * 5 = 5, where -5 * 3 = -15 would call every loss an outlier
  for (int i = 0; i < 20; ++i) observe({i % 2 == 0 ? -4.9 : -5.1});
  observe({4.9, -5});
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LossRulesTest, AboveThatABelowZeroMeanHasOutliersToo) {
  for (int i = 0; i < 20; ++i) observe({i % 2 == 0 ? -4.9 : -5.1});
  observe({5.1, 5.1, 5.1});
  EXPECT_THAT(reports_, SizeIs(1));
}

TEST_F(LossRulesTest, LossesThatNeverMoveAreNoReasonToCallEveryMoveAnOutlier) {
  observe_many(2, 20);  // standard deviation 0
  observe({2.001, 3, 5.9});
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LossRulesTest, AStepWithoutALossIsLeftOut) {
  learn();
  observe({50, 50});
  for (int i = 0; i < 5; ++i) observe(std::nullopt);
  observe({50});
  EXPECT_THAT(reports_, SizeIs(1));
}

TEST_F(LossRulesTest, BackToRandomGuessingIsToldWhereTheGuessIsKnown) {
  settings_.random_guess = std::log(10);  // 2.3026
  observe_many(0.5, 20);
  observe({2.3026});
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, IncidentClass::random_guess);
  EXPECT_EQ(reports_[0].evidence,
            "Step 21: the loss is 2.303, that of a random guess (2.303); it had been 0.5.");
  observe_many(2.3, 500);
  EXPECT_THAT(reports_, SizeIs(1)) << "the guesses do not become the history";
  observe_many(0.5, LossRules::kCloseAfter);
  EXPECT_THAT(reports_, SizeIs(2));
}

TEST_F(LossRulesTest, TheWidthAndTheLevelOfAGuessAreThoseOfTheGovernor) {
  settings_.random_guess = 10;
  struct Case {
    double mean;
    double loss;
    bool is_guess;
  };
  // Learned: below 6. Near: between 9.35 and 10.65.
  for (const Case& a_case : {Case{5.9, 9.36, true}, Case{5.9, 9.34, false}, Case{5.9, 10.64, true},
                             Case{5.9, 10.66, false}, Case{6.1, 10, false}}) {
    IncidentBook book;
    std::vector<record::Incident> seen;
    LossRules rules(0, settings_, 0, book, [&](const auto& incident) { seen.push_back(incident); });
    for (int i = 0; i < 10; ++i) {
      record::StepRecord step = next();
      step.loss = a_case.mean;
      rules.observe(step);
    }
    record::StepRecord step = next();
    step.loss = a_case.loss;
    rules.observe(step);
    EXPECT_EQ(!seen.empty(), a_case.is_guess) << a_case.mean << " " << a_case.loss;
  }
}

TEST_F(LossRulesTest, ARunThatHasNotLearnedIsNotBackAtAnything) {
  settings_.random_guess = std::log(10);
  observe_many(2.3, 100);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LossRulesTest, NextToZeroALossMayJump) {
  learn();  // first ones: 2 on average, so 0.1 is the floor
  for (int i = 0; i < 50; ++i) observe({i % 2 == 0 ? 0.001 : 0.002});
  observe({0.05, 0.09, 0.1, 0.001});
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LossRulesTest, NextToZeroItMayNotJumpToWhereItCameFrom) {
  learn();
  for (int i = 0; i < 50; ++i) observe({i % 2 == 0 ? 0.001 : 0.002});
  observe({0.11, 0.2, 0.3});
  EXPECT_THAT(reports_, SizeIs(1));
}

TEST_F(LossRulesTest, EachClassCanBeSwitchedOff) {
  judge(IncidentClass::loss_divergence, false);
  judge(IncidentClass::loss_spike, false);
  learn();
  observe({50, 50, 50, 50, 2, 50, 2});
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LossRulesTest, ANoisyLossThatFallsIsHealthy) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> noise(0, 0.25);
  for (int i = 0; i < 20'000; ++i) observe({(0.5 + 4 * std::exp(-i / 3000.0)) * noise(random)});
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace gradvane::detectors
