#include "collectors/steps/step_builder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/element.hpp"

namespace gradvane::collectors {
namespace {

using kernels::TensorStats;
using record::ParamState;
using record::Site;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::Optional;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TensorStats stats_of(const std::vector<double>& values) {
  TensorStats stats;
  for (std::size_t i = 0; i < values.size(); ++i)
    kernels::accumulate<kernels::DType::f64>(stats, std::bit_cast<std::uint64_t>(values[i]),
                                             static_cast<std::int64_t>(i));
  return stats;
}

/// A plan of one parameter for each element of `groups`, which says its group.
std::shared_ptr<ReadPlan> plan_of(const std::vector<std::int32_t>& groups,
                                  std::int32_t optimizer = 0) {
  auto model = std::make_shared<record::ModelInfo>();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    model->params.emplace_back();
    model->params.back().name = "p" + std::to_string(i);
    model->params.back().group = groups[i];
    while (model->groups.size() <= static_cast<std::size_t>(groups[i]))
      model->groups.push_back("g" + std::to_string(model->groups.size()));
  }
  auto plan = std::make_shared<ReadPlan>();
  plan->optimizer = optimizer;
  plan->model = model;
  for (std::size_t i = 0; i < groups.size(); ++i)
    plan->params.push_back(static_cast<std::int32_t>(i));
  return plan;
}

class StepBuilderTest : public testing::Test {
 protected:
  const record::StepRecord& build(const std::vector<TensorStats>& gradients,
                                  const std::vector<TensorStats>& weights = {},
                                  const std::vector<TensorStats>& loss = {}) {
    return builder_.build({}, {plan_, gradients, loss, weights}, {});
  }
  [[nodiscard]] std::int32_t params(ParamState state) const {
    return record_of_last_.params[index_of(state)];
  }
  StepBuilder builder_{HealthThresholds{}};
  std::shared_ptr<ReadPlan> plan_ = plan_of({0, 0, 1});
  TensorStats no_loss_ = not_read(EntryTag::missing);
  record::StepRecord record_of_last_;
};

TEST_F(StepBuilderTest, EveryStateOfAParameterIsToldFromTheOthers) {
  plan_ = plan_of({0, 0, 0, 0, 0, 0, 0, 0});
  record_of_last_ =
      build({not_read(EntryTag::frozen), not_read(EntryTag::missing), not_read(EntryTag::empty),
             stats_of({0, -0.0}), stats_of({0, 1}), stats_of({1, kNan}), stats_of({-kInf}),
             not_read(EntryTag::unsupported), no_loss_});
  EXPECT_EQ(params(ParamState::frozen), 1);
  EXPECT_EQ(params(ParamState::missing), 1);
  EXPECT_EQ(params(ParamState::empty), 1);
  EXPECT_EQ(params(ParamState::zero), 1);
  EXPECT_EQ(params(ParamState::finite), 1);
  EXPECT_EQ(params(ParamState::nonfinite), 2);
  EXPECT_EQ(params(ParamState::unsupported), 1);
  // Only what was read has numbers.
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(builder_.detail().params[i].grad.has_value(), i >= 3 && i <= 6) << i;
  EXPECT_EQ(record_of_last_.grad_numel, 2 + 2 + 2 + 1);
}

TEST_F(StepBuilderTest, TheLossIsTheNumberThatWasReadNanAndInfinityIncluded) {
  const TensorStats grad = stats_of({1});
  const auto loss_of = [&](double loss) { return build({grad, grad, grad, stats_of({loss})}); };
  EXPECT_THAT(loss_of(2.5).loss, Optional(2.5));
  EXPECT_FALSE(loss_of(2.5).first_nonfinite);
  EXPECT_THAT(loss_of(-2.5).loss, Optional(-2.5));
  EXPECT_THAT(loss_of(0).loss, Optional(0));
  EXPECT_TRUE(std::isnan(loss_of(kNan).loss.value()));
  EXPECT_THAT(loss_of(kInf).loss, Optional(kInf));
  EXPECT_THAT(loss_of(-kInf).loss, Optional(-kInf));

  const auto& record = loss_of(-kInf);
  EXPECT_THAT(record.nonfinite[index_of(Site::loss)], ElementsAre(0, 0, 1));
  ASSERT_TRUE(record.first_nonfinite);
  EXPECT_EQ(record.first_nonfinite->site, Site::loss);
  EXPECT_EQ(record.first_nonfinite->kind, record::NonfiniteKind::neg_inf);
  EXPECT_EQ(record.first_nonfinite->param, -1);
}

TEST_F(StepBuilderTest, ALossOfItsOwnSlotStandsInForTheOneBesideTheGradients) {
  const TensorStats grad = stats_of({1});
  EXPECT_THAT(build({grad, grad, grad, stats_of({1.0})}, {}, {stats_of({2.0})}).loss,
              Optional(2.0));
  EXPECT_THAT(build({grad, grad, grad, no_loss_}, {}, {stats_of({2.0})}).loss, Optional(2.0));
  EXPECT_THAT(build({}, {}, {stats_of({2.0})}).loss, Optional(2.0));
  const auto& without = build({grad, grad, grad, no_loss_});
  EXPECT_FALSE(without.loss);
  EXPECT_FALSE(without.site_measured[index_of(Site::loss)].has_value());
}

TEST_F(StepBuilderTest, WhatTheLoopSaidBehindTheStepStandsInForAFiniteLossAlone) {
  const TensorStats grad = stats_of({1});
  StepFacts facts;
  const auto loss_of = [&](double read, double said) {
    facts.loop_loss = said;
    const std::vector<TensorStats> gradients{grad, grad, grad, stats_of({read})};
    return builder_.build(facts, {plan_, gradients, {}, {}}, {}).loss;
  };
  EXPECT_THAT(loss_of(2.5, -3), Optional(-3));
  EXPECT_THAT(loss_of(2.5, kNan), Optional(2.5)) << "it has said nothing, or nothing of use";
  EXPECT_THAT(loss_of(2.5, kInf), Optional(2.5));
  EXPECT_THAT(loss_of(kInf, 3), Optional(kInf)) << "what was read was bad";
  const std::vector<TensorStats> gradients{grad, grad, grad, no_loss_};
  facts.loop_loss = 3;
  EXPECT_FALSE(builder_.build(facts, {plan_, gradients, {}, {}}, {}).loss);
}

TEST_F(StepBuilderTest, BlamesTheLossBeforeAGradientAndAGradientBeforeAWeight) {
  const TensorStats good = stats_of({1, 2});
  const TensorStats bad = stats_of({1, kInf});
  const TensorStats unsampled;
  const auto first_of = [&](bool loss, bool grad, bool weight) {
    const auto& record = build({good, grad ? bad : good, good, loss ? bad : stats_of({1})},
                               {good, good, weight ? bad : good, unsampled, unsampled, unsampled});
    EXPECT_EQ(record.first_by_site[index_of(Site::loss)].has_value(), loss);
    EXPECT_EQ(record.first_by_site[index_of(Site::grad)].has_value(), grad);
    EXPECT_EQ(record.first_by_site[index_of(Site::weight)].has_value(), weight);
    if (grad) {
      EXPECT_EQ(record.first_by_site[index_of(Site::grad)]->param, 1);
      EXPECT_EQ(record.first_by_site[index_of(Site::grad)]->element, 1);
    }
    if (weight) {
      EXPECT_EQ(record.first_by_site[index_of(Site::weight)]->param, 2);
    }
    return record.first_nonfinite;
  };
  EXPECT_FALSE(first_of(false, false, false));
  EXPECT_EQ(first_of(false, false, true)->site, Site::weight);
  for (const bool weight : {false, true}) {
    EXPECT_EQ(first_of(false, true, weight)->site, Site::grad);
    EXPECT_EQ(first_of(true, false, weight)->site, Site::loss);
    EXPECT_EQ(first_of(true, true, weight)->site, Site::loss);
  }
}

TEST_F(StepBuilderTest, AStepThatWasLeftToTheDeviceIsSkippedByWhatTheDeviceSaw) {
  const TensorStats good = stats_of({1, 2});
  const TensorStats bad = stats_of({1, kNan});
  const auto skipped = [&](const TensorStats& grad, const TensorStats& beside,
                           const std::vector<TensorStats>& loss, const StepFacts& facts) {
    const std::vector<TensorStats> gradients{good, grad, good, beside};
    return builder_.build(facts, {plan_, gradients, loss, {}}, {}).skipped;
  };
  StepFacts left;
  left.left_to_device = 1;
  using enum record::SkipReason;
  EXPECT_EQ(skipped(good, good, {}, left), none);
  EXPECT_EQ(skipped(bad, good, {}, left), governor);
  EXPECT_EQ(skipped(good, bad, {}, left), governor);
  EXPECT_EQ(skipped(good, no_loss_, {bad}, left), none) << "the loss came later";
  EXPECT_EQ(skipped(bad, bad, {}, {}), none) << "the control: it was taken";
  StepFacts scaled = left;
  scaled.has_scaler = true;
  EXPECT_EQ(skipped(bad, good, {}, scaled), amp_overflow) << "the scaler's own affair";
  EXPECT_EQ(skipped(good, bad, {}, scaled), governor);
}

TEST_F(StepBuilderTest, AmongBadGradientsTheLastParameterIsNamedForBackwardReachesItFirst) {
  const TensorStats good = stats_of({1});
  const auto& record = build({stats_of({kNan}), stats_of({1, 1, -kInf, kNan}), good, no_loss_});
  ASSERT_TRUE(record.first_nonfinite);
  EXPECT_EQ(record.first_nonfinite->param, 1);
  EXPECT_EQ(record.first_nonfinite->element, 2);
  EXPECT_EQ(record.first_nonfinite->kind, record::NonfiniteKind::neg_inf);
  EXPECT_THAT(record.nonfinite[index_of(Site::grad)], ElementsAre(2, 0, 1));
  EXPECT_EQ(builder_.detail().params[0].grad->first_nonfinite, 0);
}

TEST_F(StepBuilderTest, HealthFollowsEsperV1) {
  // clamp01(1 - 0.5 vanishing / n - 0.8 exploding / n), and 0 where anything is non-finite.
  struct Golden {
    std::vector<double> norms;
    double health;
    int vanishing;
    int exploding;
  };
  const double nan = kNan;
  for (const Golden& golden :
       {Golden{{1, 1, 1, 1}, 1.0, 0, 0}, Golden{{1e-8, 1, 1, 1}, 0.875, 1, 0},
        Golden{{11, 1, 1, 1}, 0.8, 0, 1}, Golden{{1e-8, 0, 11, 1e30}, 0.35, 2, 2},
        Golden{{11, 12, 13, 14}, 0.2, 0, 4}, Golden{{0, 0, 0, 0}, 0.5, 4, 0},
        Golden{{1e-7, 10, 1, 1}, 1.0, 0, 0},  // the thresholds themselves
        Golden{{nan, 1, 1, 1}, 0.0, 0, 1}, Golden{{1, 1, 1, kInf}, 0.0, 0, 1}}) {
    plan_ = plan_of({0, 0, 0, 0});
    std::vector<TensorStats> gradients;
    for (const double norm : golden.norms) gradients.push_back(stats_of({-norm}));
    gradients.push_back(no_loss_);
    const auto& record = build(gradients);
    EXPECT_THAT(record.grad_health, Optional(DoubleEq(golden.health)));
    EXPECT_EQ(record.vanishing, golden.vanishing);
    EXPECT_EQ(record.exploding, golden.exploding);
  }
}

TEST_F(StepBuilderTest, HealthIsOverTheParametersThatWereReadAndAbsentWithoutAny) {
  plan_ = plan_of({0, 0, 0, 0});
  const auto& half = build({not_read(EntryTag::frozen), not_read(EntryTag::missing), stats_of({11}),
                            stats_of({1}), no_loss_});
  EXPECT_THAT(half.grad_health, Optional(DoubleEq(0.6)));
  const auto& none = build({not_read(EntryTag::frozen), not_read(EntryTag::missing),
                            not_read(EntryTag::empty), not_read(EntryTag::unsupported), no_loss_});
  EXPECT_FALSE(none.grad_health);
  EXPECT_FALSE(none.grad_norm);
  EXPECT_FALSE(none.grad_abs_max);
  EXPECT_EQ(none.vanishing, 0);
  EXPECT_FALSE(none.site_measured[index_of(Site::grad)].has_value());
}

TEST_F(StepBuilderTest, ThresholdsAreThoseGiven) {
  StepBuilder strict(HealthThresholds{.vanishing = 1, .exploding = 2});
  const std::vector<TensorStats> gradients{stats_of({0.5}), stats_of({1.5}), stats_of({2.5}),
                                           no_loss_};
  const auto& record = strict.build({}, {plan_, gradients, {}, {}}, {});
  EXPECT_EQ(record.vanishing, 1);
  EXPECT_EQ(record.exploding, 1);
}

TEST_F(StepBuilderTest, NormsAddUpOverParametersAndGroups) {
  const TensorStats a = stats_of({3, 0});
  const TensorStats b = stats_of({-4});
  const TensorStats c = stats_of({12, 0, 0, kNan});
  const auto& record = build({a, b, c, no_loss_});
  EXPECT_THAT(record.grad_norm, Optional(DoubleEq(13)));  // 3, 4, 12: over finite elements
  EXPECT_THAT(record.grad_abs_max, Optional(12));
  EXPECT_EQ(record.grad_numel, 7);
  EXPECT_EQ(record.grad_zero, 3);
  const auto& groups = builder_.detail().groups;
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].params, 2);
  EXPECT_EQ(groups[1].params, 1);
  EXPECT_THAT(groups[0].grad_norm, Optional(DoubleEq(5)));
  EXPECT_THAT(groups[1].grad_norm, Optional(DoubleEq(12)));
  EXPECT_THAT(groups[0].grad_abs_max, Optional(4));
  EXPECT_THAT(record.grad_abs_min_nonzero, Optional(3));
  EXPECT_THAT(groups[0].grad_abs_min_nonzero, Optional(3));
  EXPECT_THAT(groups[1].grad_abs_min_nonzero, Optional(12));
  EXPECT_THAT(groups[0].grad_zero_ratio, Optional(DoubleEq(1.0 / 3)));
  EXPECT_THAT(groups[1].grad_zero_ratio, Optional(DoubleEq(0.5)));
  EXPECT_THAT(groups[1].nonfinite[index_of(Site::grad)], ElementsAre(1, 0, 0));
  EXPECT_FALSE(groups[0].weight_norm);
  EXPECT_FALSE(groups[0].update_ratio);
}

TEST_F(StepBuilderTest, SubnormalsAreAShareOfTheGroupAndZerosAloneHaveNoSmallestMagnitude) {
  const TensorStats a = stats_of({1e-310, 1});
  const TensorStats b = stats_of({1, 1});
  const TensorStats zeros = stats_of({0, 0});
  const auto& record = build({a, b, zeros, no_loss_});
  const auto& groups = builder_.detail().groups;
  EXPECT_EQ(record.grad_subnormal, 1);
  EXPECT_THAT(groups[0].grad_subnormal_ratio, Optional(DoubleEq(0.25)));
  EXPECT_THAT(groups[1].grad_subnormal_ratio, Optional(0));
  EXPECT_THAT(record.grad_abs_min_nonzero, Optional(1e-310));
  EXPECT_FALSE(groups[1].grad_abs_min_nonzero);
  EXPECT_THAT(groups[1].grad_abs_max, Optional(0));
}

TEST_F(StepBuilderTest, WhereNoElementIsFiniteThereIsNoNormAndNoLargestMagnitude) {
  const TensorStats bad = stats_of({kNan, kInf});
  const auto& part = build({bad, stats_of({-4}), bad, no_loss_});
  EXPECT_THAT(part.grad_norm, Optional(DoubleEq(4)));
  const auto& groups = builder_.detail().groups;
  EXPECT_THAT(groups[0].grad_norm, Optional(DoubleEq(4)));
  EXPECT_THAT(groups[0].grad_abs_max, Optional(4));
  EXPECT_FALSE(groups[1].grad_norm || groups[1].grad_abs_max) << "only the other group has any";
  const auto& whole = build({bad, bad, bad, no_loss_}, std::vector<TensorStats>(6, bad));
  EXPECT_FALSE(whole.grad_norm || whole.grad_norm_at_step || whole.grad_abs_max);
  EXPECT_FALSE(whole.weight_norm || groups[0].weight_norm);
  EXPECT_TRUE(whole.site_measured[index_of(Site::grad)] &&
              whole.site_measured[index_of(Site::weight)]);
  EXPECT_THAT(whole.nonfinite[index_of(Site::grad)], ElementsAre(3, 3, 0));
  const auto& zero = build({stats_of({0}), bad, bad, no_loss_});
  EXPECT_THAT(zero.grad_norm, Optional(0)) << "a zero that was read is one";
}

TEST_F(StepBuilderTest, NormsHoldOverTheWholeRangeOfDoublesWithoutBecomingInfinite) {
  for (const double size : {1e-300, 1e-160, 1.0, 1e160, 1e300}) {
    const TensorStats grad = stats_of({3 * size, 4 * size});
    const auto& record = build({grad, grad, grad, no_loss_});
    EXPECT_NEAR(record.grad_norm.value() / (5 * size * std::sqrt(3.0)), 1, 1e-14) << size;
    EXPECT_NEAR(builder_.detail().groups[0].grad_norm.value() / (5 * size * std::sqrt(2.0)), 1,
                1e-14);
    EXPECT_FALSE(record.first_nonfinite) << "our own overflow is not the training's";
  }
}

}  // namespace
}  // namespace gradvane::collectors
