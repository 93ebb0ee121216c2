// What a record says where only a part of the step was read, or what was read is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "collectors/steps/step_builder.hpp"
#include "record/numbers.hpp"
#include "tests/collectors/steps/scalar_stats.hpp"

namespace gradvane::collectors {
namespace {

using kernels::TensorStats;
using record::ParamState;
using record::Site;
using test::number;
using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using testing::Optional;

/// As the sample of an update: `count` elements of `delta` each.
TensorStats sample(std::int64_t count, double delta) {
  TensorStats stats = number(delta);
  stats.numel = count;
  stats.sum_sq = static_cast<double>(count) * delta * delta;
  return stats;
}

TensorStats tensor(std::int64_t numel, double norm) {
  TensorStats stats = number(norm);
  stats.numel = numel;
  return stats;
}

std::shared_ptr<record::ModelInfo> model_of(std::size_t params) {
  auto model = std::make_shared<record::ModelInfo>();
  model->params.resize(params);
  model->groups = {"all"};
  return model;
}

std::shared_ptr<ReadPlan> plan_of(std::shared_ptr<const record::ModelInfo> model,
                                  std::vector<std::int32_t> params) {
  auto plan = std::make_shared<ReadPlan>();
  plan->model = std::move(model);
  plan->params = std::move(params);
  return plan;
}

std::int32_t in_state(const record::StepRecord& record, ParamState state) {
  return record.params[index_of(state)];
}

void expect_nothing_measured(const record::StepRecord& record, const record::StepDetail& detail) {
  for (const record::StepNumber& number : record::kStepNumbers) {
    if (number.stored == nullptr) continue;
    EXPECT_FALSE(record.*number.stored) << number.key;
  }
  EXPECT_THAT(record.site_measured, Each(testing::Eq(std::nullopt)));
  EXPECT_FALSE(record.first_nonfinite);
  EXPECT_THAT(record.first_by_site, Each(testing::Eq(std::nullopt)));
  EXPECT_EQ(record.grad_numel, 0);
  for (const auto& param : detail.params) {
    EXPECT_FALSE(param.grad);
    EXPECT_FALSE(param.weight);
    EXPECT_FALSE(param.update_ratio);
  }
  for (const auto& group : detail.groups) {
    EXPECT_EQ(group.params, 0);
    for (const record::TensorNumber& number : record::kTensorNumbers)
      EXPECT_FALSE(group.*number.group) << number.key;
    for (const auto& counts : group.nonfinite) EXPECT_THAT(counts, Each(0));
  }
}

TEST(StepBuilderSlots, AStepOfWhichNothingIsKnownSaysNothing) {
  StepBuilder builder({});
  expect_nothing_measured(builder.build({}, {}, {}), builder.detail());
  EXPECT_EQ(builder.model(), nullptr);
}

TEST(StepBuilderSlots, AStepWhoseSlotsAreLostDoesNotRepeatTheStepBefore) {
  StepBuilder builder({});
  const auto plan = plan_of(model_of(2), {0, 1});
  TensorStats bad = number(1);
  bad.nan = 1;
  bad.first_nonfinite = 0;
  bad.first_kind = 0;
  const std::vector<TensorStats> gradients{number(2), bad, number(0.5)};
  const std::vector<TensorStats> weights{number(3), number(4), sample(1, 0.1), sample(1, 0.1)};
  const auto& full = builder.build({}, {plan, gradients, {}, weights}, {});
  ASSERT_TRUE(full.grad_norm && full.weight_norm && full.loss && full.first_nonfinite);

  const record::StepRecord lost = builder.build({.step = 2}, {}, {});
  expect_nothing_measured(lost, builder.detail());
  EXPECT_EQ(lost.step, 2);
  EXPECT_THAT(lost.params, Each(0)) << "what was not read has no state";
  EXPECT_EQ(builder.detail().params[1].state, ParamState::nonfinite) << "the last that is known";
  EXPECT_EQ(builder.model(), plan->model);
}

TEST(StepBuilderSlots, ASlotOfAnotherSizeThanThePlansIsLeftOut) {
  StepBuilder builder({});
  const auto plan = plan_of(model_of(2), {0, 1});
  const std::vector<TensorStats> any(5, number(1));
  for (const std::size_t count : {1U, 2U, 5U}) {  // 3 and 4: the loss, and its scale
    const auto& record = builder.build({}, {plan, std::span(any).first(count), {}, {}}, {});
    expect_nothing_measured(record, builder.detail());
  }
  for (const std::size_t count : {1U, 2U, 3U, 5U}) {
    const auto& record = builder.build({}, {plan, {}, {}, std::span(any).first(count)}, {});
    expect_nothing_measured(record, builder.detail());
  }
}

TEST(StepBuilderSlots, AModelWithoutParametersHasALossAllTheSame) {
  StepBuilder builder({});
  const auto plan = plan_of(std::make_shared<record::ModelInfo>(), {});
  const std::vector<TensorStats> slot{number(0.25)};
  const auto& record = builder.build({}, {plan, slot, {}, {}}, {});
  EXPECT_THAT(record.loss, Optional(0.25));
  EXPECT_FALSE(record.grad_norm);
  EXPECT_FALSE(record.grad_health);
}

TEST(StepBuilderSlots, WeightsAreThereOnlyInTheStepThatReadThem) {
  StepBuilder builder({});
  const auto plan = plan_of(model_of(2), {0, 1});
  const std::vector<TensorStats> gradients{number(2), number(1), not_read(EntryTag::missing)};
  const std::vector<TensorStats> weights{number(3), number(4), TensorStats{}, TensorStats{}};

  const auto& with = builder.build({}, {plan, gradients, {}, weights}, {});
  EXPECT_THAT(with.weight_norm, Optional(DoubleEq(5)));
  EXPECT_EQ(with.site_measured[index_of(Site::weight)], true);
  EXPECT_FALSE(with.update_ratio) << "no sample was kept";
  EXPECT_THAT(builder.detail().groups[0].weight_norm, Optional(DoubleEq(5)));
  EXPECT_TRUE(builder.detail().params[0].weight);

  const auto& without = builder.build({}, {plan, gradients, {}, {}}, {});
  EXPECT_FALSE(without.weight_norm);
  EXPECT_FALSE(without.site_measured[index_of(Site::weight)].has_value());
  EXPECT_FALSE(builder.detail().params[0].weight);
  EXPECT_TRUE(builder.detail().params[0].grad);

  const auto& alone = builder.build({}, {plan, {}, {}, weights}, {});
  EXPECT_THAT(alone.weight_norm, Optional(DoubleEq(5)));
  EXPECT_FALSE(alone.grad_norm);
}

TEST(StepBuilderSlots, TheUpdateRatioIsScaledUpFromTheSample) {
  StepBuilder builder({});
  const auto plan = plan_of(model_of(3), {0, 1, 2});
  // 400 elements, 4 of them sampled, each moved by 0.01: ‖Δw‖ = sqrt(400) * 0.01 = 0.2.
  // 100 elements, all sampled, each moved by 0.02: 0.2. The third was not sampled.
  const std::vector<TensorStats> weights{tensor(400, 2),   tensor(100, 1),    tensor(10, 50),
                                         sample(4, -0.01), sample(100, 0.02), TensorStats{}};
  const auto& record = builder.build({}, {plan, {}, {}, weights}, {});
  const auto& params = builder.detail().params;
  EXPECT_THAT(params[0].update_ratio, Optional(DoubleEq(0.1)));
  EXPECT_THAT(params[1].update_ratio, Optional(DoubleEq(0.2)));
  EXPECT_FALSE(params[2].update_ratio);
  // Over the parameters that were sampled: what is unknown is in neither norm.
  const double expected = std::hypot(0.2, 0.2) / std::hypot(2.0, 1.0);
  EXPECT_NEAR(record.update_ratio.value(), expected, 1e-15);
  EXPECT_NEAR(builder.detail().groups[0].update_ratio.value(), expected, 1e-15);
}

TEST(StepBuilderSlots, ANonfiniteUpdateAndAWeightOfZeroHaveNoRatio) {
  StepBuilder builder({});
  const auto plan = plan_of(model_of(3), {0, 1, 2});
  TensorStats bad = sample(4, 0.01);
  bad.nan = 1;
  TensorStats zero;
  zero.numel = zero.zero = 8;
  const std::vector<TensorStats> weights{tensor(4, 2), zero,           tensor(4, 2),
                                         bad,          sample(8, 0.0), sample(4, 0.25)};
  const auto& record = builder.build({}, {plan, {}, {}, weights}, {});
  EXPECT_FALSE(builder.detail().params[0].update_ratio);
  EXPECT_FALSE(builder.detail().params[1].update_ratio);
  EXPECT_THAT(builder.detail().params[2].update_ratio, Optional(DoubleEq(0.25)));
  EXPECT_THAT(record.update_ratio, Optional(DoubleEq(0.25)));
}

TEST(StepBuilderSlots, AStepCountsItsOwnParametersAndLeavesTheStatesOfTheRestAsTheyWere) {
  StepBuilder builder({});
  const auto model = model_of(3);
  const auto generator = plan_of(model, {0, 1});
  const auto critic = plan_of(model, {2});
  const TensorStats none = not_read(EntryTag::missing);
  const std::vector<TensorStats> two{number(1), not_read(EntryTag::frozen), none};
  const std::vector<TensorStats> one{number(7), none};

  const auto& first = builder.build({}, {generator, two, {}, {}}, {});
  EXPECT_THAT(first.params, ElementsAre(1, 0, 0, 0, 1, 0, 0)) << "one frozen, one finite";
  const auto& second = builder.build({.optimizer = 1}, {critic, one, {}, {}}, {});
  EXPECT_THAT(second.grad_norm, Optional(7));
  EXPECT_THAT(second.params, ElementsAre(0, 0, 0, 0, 1, 0, 0));
  EXPECT_EQ(builder.detail().params[0].state, ParamState::finite);
  EXPECT_EQ(builder.detail().params[1].state, ParamState::frozen);
  EXPECT_FALSE(builder.detail().params[0].grad);
  EXPECT_EQ(builder.detail().groups[0].params, 1);
}

TEST(StepBuilderSlots, ANewModelStartsAfresh) {
  StepBuilder builder({});
  const TensorStats none = not_read(EntryTag::missing);
  const std::vector<TensorStats> two{number(1), number(1), none};
  (void)builder.build({}, {plan_of(model_of(2), {0, 1}), two, {}, {}}, {});
  const auto larger = plan_of(model_of(4), {0, 1});
  const auto& record = builder.build({}, {larger, two, {}, {}}, {});
  EXPECT_EQ(builder.model(), larger->model);
  EXPECT_EQ(builder.detail().params.size(), 4U);
  EXPECT_THAT(record.params, ElementsAre(0, 0, 0, 0, 2, 0, 0));
}

TEST(StepBuilderSlots, TotalsAreThoseOfTheSlotAlsoWhereTheStepIsLost) {
  StepBuilder builder({});
  kernels::RunningTotals totals;
  for (std::size_t s = 0; s < record::kSites; ++s) {
    for (std::size_t k = 0; k < record::kNonfiniteKinds; ++k)
      totals.elements[s][k] = static_cast<std::int64_t>(10 * (s + 1) + k);
    totals.reads[s] = static_cast<std::int64_t>(s + 1);
  }
  const auto& record = builder.build({}, {}, totals);
  EXPECT_THAT(record.nonfinite_total[0], testing::ElementsAre(10, 11, 12));
  EXPECT_THAT(record.nonfinite_total[2], testing::ElementsAre(30, 31, 32));
  EXPECT_THAT(record.nonfinite_steps_total, testing::ElementsAre(1, 2, 3));
}

TEST(StepBuilderSlots, FactsArePassedOnAndWhatWasNotMeasuredStaysAbsent) {
  StepBuilder builder({});
  StepFacts facts;
  facts.step = 7;
  facts.run_step = 9;
  facts.optimizer = 2;
  facts.micro_steps = 4;
  facts.time = 1.5e9;
  facts.read_at = record::ReadAt::clip;
  facts.skipped = record::SkipReason::amp_overflow;
  facts.clip_coefficient = 0.25;
  facts.norm_after_clip = 0;  // measured, and 0
  facts.lr_count = 2;
  facts.lr[1] = 0.125;
  facts.user_count = 1;
  facts.user[0] = -3;
  facts.agent_seconds = 0.001;
  facts.phase_seconds[2] = 0.5;
  facts.tokens = 0;
  facts.contiguous_copies = 3;
  const auto& record = builder.build(facts, {}, {});
  EXPECT_EQ(record.step, 7);
  EXPECT_EQ(record.run_step, 9);
  EXPECT_EQ(record.optimizer, 2);
  EXPECT_EQ(record.micro_steps, 4);
  EXPECT_EQ(record.time, 1.5e9);
  EXPECT_EQ(record.read_at, record::ReadAt::clip);
  EXPECT_EQ(record.skipped, record::SkipReason::amp_overflow);
  EXPECT_THAT(record.clip_coefficient, Optional(0.25));
  EXPECT_THAT(record.grad_norm_at_step, Optional(0));
  EXPECT_EQ(record.lr_count, 2);
  EXPECT_EQ(record.lr[1], 0.125);
  EXPECT_EQ(record.user[0], -3);
  EXPECT_EQ(record.agent_seconds, 0.001);
  EXPECT_EQ(record.phase_seconds[2], 0.5);
  EXPECT_THAT(record.tokens, Optional(0));
  EXPECT_EQ(record.contiguous_copies, 3);
  EXPECT_FALSE(record.samples);
  EXPECT_FALSE(record.step_seconds);
}

TEST(StepBuilderSlots, WhatADeviceClippedFollowsFromTheNormThatItRead) {
  const auto plan = plan_of(model_of(1), {0});
  StepBuilder builder({});
  StepFacts facts;
  facts.clip_max_norm = 1;
  const std::vector<TensorStats> large{tensor(10, 4), not_read(EntryTag::missing)};
  const auto& clipped = builder.build(facts, {plan, large, {}, {}}, {});
  EXPECT_THAT(clipped.clip_coefficient, Optional(DoubleEq(1 / (4 + 1e-6))));
  EXPECT_THAT(clipped.grad_norm_at_step, Optional(DoubleEq(4 / (4 + 1e-6))));

  const std::vector<TensorStats> small{tensor(10, 0.5), not_read(EntryTag::missing)};
  EXPECT_THAT(builder.build(facts, {plan, small, {}, {}}, {}).clip_coefficient, Optional(1.0));

  std::vector<TensorStats> bad = large;
  bad[0].nan = 1;
  bad[0].first_nonfinite = 0;
  EXPECT_FALSE(builder.build(facts, {plan, bad, {}, {}}, {}).clip_coefficient);
  EXPECT_FALSE(builder.build(facts, {}, {}).clip_coefficient) << "the norm was lost";
}

TEST(StepBuilderSlots, ALossThatADeviceAddedUpIsDividedByItsNumber) {
  const auto plan = plan_of(model_of(1), {0});
  StepBuilder builder({});
  StepFacts facts;
  facts.losses = 4;
  facts.device_allocated_bytes = 5;
  facts.device_reserved_bytes = 8;
  facts.device_peak_bytes = 7;
  facts.device_limit_bytes = 9;
  facts.device_allocation_retries = 2;
  facts.device_out_of_memory = 1;
  const std::vector<TensorStats> gradients{tensor(10, 4), number(6)};
  const auto& record = builder.build(facts, {plan, gradients, {}, {}}, {});
  EXPECT_THAT(record.loss, Optional(1.5));
  EXPECT_THAT(record.device_allocated_bytes, Optional(5));
  EXPECT_THAT(record.device_reserved_bytes, Optional(8));
  EXPECT_THAT(record.device_peak_bytes, Optional(7));
  EXPECT_THAT(record.device_limit_bytes, Optional(9));
  EXPECT_THAT(record.device_allocation_retries, Optional(2));
  EXPECT_THAT(record.device_out_of_memory, Optional(1));
}

TEST(StepBuilderSlots, AnEntryWhoseDevicesSlotWasLostIsMissing) {
  const auto plan = plan_of(model_of(1), {0});
  StepBuilder builder({});
  const std::vector<TensorStats> gradients{not_read(EntryTag::elsewhere), number(6)};
  const auto& record = builder.build({}, {plan, gradients, {}, {}}, {});
  EXPECT_EQ(in_state(record, ParamState::missing), 1);
}

}  // namespace
}  // namespace gradvane::collectors
