// What a gradient scaler, a shard and a device's scalars make of a record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "collectors/steps/step_builder.hpp"
#include "tests/collectors/steps/scalar_stats.hpp"

namespace gradvane::collectors {
namespace {

using kernels::TensorStats;
using record::SkipReason;
using test::number;
using testing::DoubleNear;
using testing::Optional;

TensorStats overflow() {
  TensorStats stats = number(1);
  stats.numel = 2;
  stats.pos_inf = 1;
  stats.first_nonfinite = 1;
  stats.first_kind = 1;
  return stats;
}

std::shared_ptr<ReadPlan> plan_of(std::size_t params) {
  auto model = std::make_shared<record::ModelInfo>();
  model->groups = {"all"};
  model->params.resize(params);
  auto plan = std::make_shared<ReadPlan>();
  plan->model = model;
  for (std::size_t i = 0; i < params; ++i) plan->params.push_back(static_cast<std::int32_t>(i));
  return plan;
}

class ScaledSteps : public testing::Test {
 protected:
  /// A step under a scaler, with `gradient` read while it was multiplied by `scale`.
  record::StepRecord step(const TensorStats& gradient, double scale, bool is_scaled = true) {
    const std::vector<TensorStats> entries{gradient, number(0.5), number(scale)};
    StepFacts facts;
    facts.has_scaler = true;
    facts.gradients_scaled = is_scaled;
    totals_.elements[1][1] += gradient.pos_inf;
    totals_.reads[1] += gradient.nonfinite() > 0 ? 1 : 0;
    return builder_.build(facts, {plan_, entries, {}, {}}, totals_);
  }
  std::shared_ptr<ReadPlan> plan_ = plan_of(1);
  StepBuilder builder_{{}};
  kernels::RunningTotals totals_;
};

TEST_F(ScaledSteps, NumbersAreDividedByTheScaleThatWasRead) {
  const auto record = step(number(-3 * 1024.0), 1024);
  EXPECT_THAT(record.grad_norm, Optional(3.0));
  EXPECT_THAT(record.grad_abs_max, Optional(3.0));
  EXPECT_THAT(record.loss_scale, Optional(1024.0));
  EXPECT_THAT(record.loss, Optional(0.5)) << "the loss is handed over unscaled";
  EXPECT_EQ(builder_.detail().params[0].grad->sum, -3);
}

TEST_F(ScaledSteps, GradientsThatWereUnscaledBeforeTheReadAreLeftAsTheyAre) {
  const auto record = step(number(3), 1024, /*is_scaled=*/false);
  EXPECT_THAT(record.grad_norm, Optional(3.0));
  EXPECT_THAT(record.loss_scale, Optional(1024.0));
}

TEST_F(ScaledSteps, AScaleThatIsNoneIsNotDividedBy) {
  for (const double scale : {0.0, -2.0}) {
    const auto record = step(number(3), scale);
    EXPECT_THAT(record.grad_norm, Optional(3.0));
    EXPECT_FALSE(record.loss_scale);
  }
}

TEST_F(ScaledSteps, AnOverflowIsSkippedAndNotAmongTheTotals) {
  const auto record = step(overflow(), 65536);
  EXPECT_EQ(record.skipped, SkipReason::amp_overflow);
  EXPECT_TRUE(record.is_handled_overflow());
  EXPECT_TRUE(record.is_step());
  EXPECT_EQ(record.nonfinite_total[1][1], 0);
  EXPECT_EQ(record.nonfinite_steps_total[1], 0);
  EXPECT_EQ(step(number(1), 32768).skipped, SkipReason::none);
}

TEST_F(ScaledSteps, TheSeventeenthOverflowInARowIsAnEvent) {
  for (int i = 1; i <= 16; ++i) EXPECT_TRUE(step(overflow(), 2).is_handled_overflow()) << i;
  const auto record = step(overflow(), 1);
  EXPECT_FALSE(record.is_handled_overflow());
  EXPECT_EQ(record.skipped, SkipReason::amp_overflow) << "and skipped all the same";
  EXPECT_EQ(record.nonfinite_total[1][1], 1);
  EXPECT_EQ(record.nonfinite_steps_total[1], 1);
}

TEST_F(ScaledSteps, OneCleanStepStartsTheCountAnew) {
  for (int i = 0; i < 16; ++i) (void)step(overflow(), 2);
  (void)step(number(1), 1);
  EXPECT_TRUE(step(overflow(), 1).is_handled_overflow());
}

TEST_F(ScaledSteps, WithoutAScalerTheSameGradientsAreAnEvent) {
  const std::vector<TensorStats> entries{overflow(), number(0.5), not_read(EntryTag::missing)};
  const auto& record = builder_.build({}, {plan_, entries, {}, {}}, {});
  EXPECT_EQ(record.skipped, SkipReason::none);
  EXPECT_FALSE(record.is_handled_overflow());
}

TEST(Shards, HaveANormOfTheirOwnAndBringTheirShareToTheGlobalOne) {
  StepBuilder builder({});
  const auto plan = plan_of(2);
  plan->shards = {{1.0, 40}, {0.5, 0}};  // the second is replicated over two processes
  const std::vector<TensorStats> entries{number(3), number(4), number(1)};
  StepFacts facts;
  facts.clip_max_norm = 1;
  record::StepRecord record = builder.build(facts, {plan, entries, {}, {}}, {});
  EXPECT_FALSE(record.grad_norm);
  EXPECT_THAT(record.shard_grad_norm, Optional(5.0));
  EXPECT_THAT(record.norm_contribution, Optional(DoubleNear(std::sqrt(9 + 8.0), 1e-12)));
  EXPECT_FALSE(record.clip_coefficient) << "it follows from a norm that is not known yet";

  StepBuilder::take_global_norm(record, 10, facts);
  EXPECT_THAT(record.grad_norm, Optional(10.0));
  EXPECT_THAT(record.clip_coefficient, Optional(DoubleNear(0.1, 1e-7)));
  EXPECT_THAT(record.grad_norm_at_step, Optional(DoubleNear(1, 1e-6)));
}

TEST(Shards, NameAnElementByItsPlaceInTheWholeParameter) {
  StepBuilder builder({});
  const auto plan = plan_of(2);
  plan->shards = {{1.0, 40}, {1.0, -1}};
  for (const bool is_range : {true, false}) {
    const std::vector<TensorStats> entries{is_range ? overflow() : number(1),
                                           is_range ? number(1) : overflow(), number(1)};
    const auto& record = builder.build({}, {plan, entries, {}, {}}, {});
    EXPECT_EQ(record.first_nonfinite->element, is_range ? 41 : -1);
    EXPECT_EQ(record.first_by_site[1]->element, is_range ? 41 : -1);
  }
}

TEST(UserMetrics, FromADeviceStandBesideThoseFromTheHost) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  StepBuilder builder({});
  StepFacts facts;
  facts.user_count = 5;
  facts.user = {0.25, record::kNotLogged, record::kNotLogged, record::kNotLogged, nan};
  TensorStats bad = number(0);
  bad.nan = 1;
  const std::vector<TensorStats> user{not_read(EntryTag::missing), number(7), bad,
                                      not_read(EntryTag::missing)};
  const auto& record = builder.build(facts, {plan_of(0), {}, {}, {}, user}, {});
  EXPECT_EQ(record.user[0], 0.25);
  EXPECT_EQ(record.user[1], 7);
  EXPECT_TRUE(std::isnan(record.user[2]) && record::is_logged(record.user[2]));
  EXPECT_FALSE(record::is_logged(record.user[3]));
  EXPECT_TRUE(record::is_logged(record.user[4])) << "a NaN that the host has logged";
}

}  // namespace
}  // namespace gradvane::collectors
