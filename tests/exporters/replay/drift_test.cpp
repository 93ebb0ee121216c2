#include "exporters/replay/drift.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "exporters/replay/story.hpp"
#include "tests/exporters/recording/recorded_run.hpp"

namespace gradvane::exporters::recording {
namespace {

using fakes::RecordedRun;
using fakes::recording_in;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> noise(std::size_t count, unsigned seed, double spread = 0.1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> values(count);
  for (double& value : values) value = std::exp(normal(random));
  return values;
}

TEST(Onset, IsTheFirstStepOfADeviationThatLasts) {
  auto values = noise(120, 1);
  for (std::size_t i = 110; i < 120; ++i) values[i] *= 50;
  const auto onset = onset_of(values, 90);
  ASSERT_TRUE(onset);
  EXPECT_EQ(onset->index, 110U);
  EXPECT_NEAR(onset->usual, 1, 0.1);
  EXPECT_GT(onset->score, 6);
}

TEST(Onset, IsNoOutlierThatWentAwayAgain) {
  auto values = noise(120, 2);
  values[100] *= 1000;
  EXPECT_FALSE(onset_of(values, 90));
}

TEST(Onset, IsSeenAsWellWhereAValueFalls) {
  auto values = noise(120, 3);
  for (std::size_t i = 115; i < 120; ++i) values[i] = 0;
  EXPECT_EQ(onset_of(values, 90)->index, 115U);
}

TEST(Onset, StepsOverValuesThatWereNotMeasured) {
  auto values = noise(120, 4);
  for (std::size_t i = 112; i < 120; ++i) values[i] = i % 2 == 0 ? 99 : kNan;
  EXPECT_EQ(onset_of(values, 90)->index, 112U);
}

TEST(Onset, NeedsAHistory) {
  std::vector<double> values(20, kNan);
  values.insert(values.end(), {1, 1, 1, 1, 1, 1, 1, 900});
  EXPECT_FALSE(onset_of(values, 27));
}

TEST(Onset, IsNotSeenInNoiseOfAnyWidth) {
  int seen = 0;
  for (unsigned seed = 0; seed < 3000; ++seed)
    seen += onset_of(noise(160, seed, seed % 3 == 0 ? 0.01 : seed % 3 == 1 ? 0.3 : 2), 128) ? 1 : 0;
  EXPECT_LE(seen, 3);
}

// ---- in a recording ---------------------------------------------------------------------------------

/// A step that is bad in one parameter, of which `left` of the norm is left.
void ruin(fakes::FakeStep& step, std::size_t param, double left) {
  auto& grad = *step.detail.params[param].grad;
  const std::int64_t bad = left > 0 ? grad.numel / 2 : grad.numel;
  grad.norm *= left;
  grad.abs_max *= left;
  auto& group = step.detail.groups[2];
  group.grad_norm = *group.grad_norm * left;
  group.grad_abs_max = *group.grad_abs_max * left;
  step.record.grad_norm = *step.record.grad_norm * left;
  step.record.grad_abs_max = *step.record.grad_abs_max * left;
  constexpr auto kGrad = index_of(record::Site::grad);
  grad.nonfinite = group.nonfinite[kGrad] = step.record.nonfinite[kGrad] = {bad, 0, 0};
}

TEST(Moved, WhatIsLeftOfAGradientThatIsNotFiniteHasNotMoved) {
  for (const double left : {0.0, 1e-6}) {
    RecordedRun run;
    ASSERT_EQ(run.start(), ExportResult::ok);
    run.steps(200);
    auto& step = run.training.next();
    run.training.poison_gradient(3, record::NonfiniteKind::nan);
    ruin(step, 3, left);
    ASSERT_EQ(run.recorder->export_step(step.record, step.detail, *run.model), ExportResult::ok);
    ASSERT_EQ(run.recorder->export_incident(fakes::fake_incident(1, 201)), ExportResult::ok);
    const Story story = story_of(*recording_in(run.recorder->last_file()));
    EXPECT_EQ(story.fault, 201);
    EXPECT_THAT(story.moved, testing::IsEmpty()) << left;
    EXPECT_THAT(text_of(story), HasSubstr("Nothing left its usual range before step 201."));
  }
}

TEST(Normal, StepsWhoseGradientsOverflowedSayNothingOfTheUsualNorm) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(20);
  auto& step = run.training.next();
  run.training.poison_gradient(3, record::NonfiniteKind::pos_inf);
  ruin(step, 3, 0);
  step.record.skipped = record::SkipReason::amp_overflow;
  ASSERT_EQ(run.recorder->export_step(step.record, step.detail, *run.model), ExportResult::ok);
  run.steps(20);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  const Story story = story_of(*recording_in(run.recorder->last_file()));
  ASSERT_TRUE(story.normal && story.normal->grad_norm);
  EXPECT_EQ(story.normal->grad_norm->count, 40);
  EXPECT_GT(story.normal->grad_norm->low, 0.5);
}

}  // namespace
}  // namespace gradvane::exporters::recording
