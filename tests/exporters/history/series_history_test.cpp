#include "exporters/history/series_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace gradvane::exporters {
namespace {

using record::ModelInfo;
using record::StepRecord;

StepRecord step_with(std::int64_t step, std::optional<double> loss) {
  StepRecord record;
  record.step = record.run_step = step;
  record.time = static_cast<double>(step);
  record.loss = loss;
  return record;
}

const SeriesColumns::Series* find(const SeriesColumns& columns, const std::string& name) {
  for (const auto& series : columns.series)
    if (series.name == name) return &series;
  return nullptr;
}

TEST(SeriesHistory, KeepsTheSmallestTheLargestAndTheLastOfEachPoint) {
  SeriesHistory history;
  constexpr std::int64_t kSteps = 10'000;
  const auto loss_at = [](std::int64_t step) { return std::sin(0.37 * static_cast<double>(step)); };
  for (std::int64_t step = 1; step <= kSteps; ++step)
    history.take(step_with(step, loss_at(step)), ModelInfo{});

  const SeriesColumns columns = history.after(0);
  const auto* loss = find(columns, "loss");
  ASSERT_NE(loss, nullptr);
  ASSERT_EQ(loss->values.size(), columns.points.size());
  ASSERT_LE(columns.points.size(), SeriesHistory::kPoints);
  for (std::size_t i = 0; i < columns.points.size(); ++i) {
    double low = 2, high = -2;
    for (auto step = columns.points[i].first; step <= columns.points[i].last; ++step) {
      low = std::min(low, loss_at(step));
      high = std::max(high, loss_at(step));
    }
    ASSERT_EQ(loss->values[i]->min, low);
    ASSERT_EQ(loss->values[i]->max, high);
    ASSERT_EQ(loss->values[i]->last, loss_at(columns.points[i].last));
  }
}

TEST(SeriesHistory, NeverLosesABadStepHoweverLongTheRun) {
  SeriesHistory history;
  for (std::int64_t step = 1; step <= 100'000; ++step) {
    StepRecord record = step_with(step, 1.0);
    if (step == 777) record.nonfinite[0] = {1, 0, 0};
    if (step == 777) record.loss = std::nan("");
    if (step % 50'000 == 0) record.skipped = record::SkipReason::loop;
    history.take(record, ModelInfo{});
  }
  const SeriesColumns columns = history.after(0);
  const auto& bad = columns.nonfinite[0];
  EXPECT_EQ(std::accumulate(bad.begin(), bad.end(), std::int64_t{0}), 1);
  const auto at = static_cast<std::size_t>(std::ranges::find(bad, 1) - bad.begin());
  EXPECT_LE(columns.points[at].first, 777);
  EXPECT_GE(columns.points[at].last, 777);
  EXPECT_EQ(std::accumulate(columns.skipped.begin(), columns.skipped.end(), std::int64_t{0}), 2);
}

TEST(SeriesHistory, DrawsNothingWhereTheLossWasNotFinite) {
  SeriesHistory history;
  history.take(step_with(1, 2.0), ModelInfo{});
  history.take(step_with(2, std::numeric_limits<double>::infinity()), ModelInfo{});
  history.take(step_with(3, 1.0), ModelInfo{});
  const SeriesColumns columns = history.after(0);
  const auto& values = find(columns, "loss")->values;
  EXPECT_TRUE(values[0]);
  EXPECT_FALSE(values[1]);
  EXPECT_TRUE(values[2]);
}

TEST(SeriesHistory, LeavesOutWhatWasNeverMeasured) {
  SeriesHistory history;
  history.take(step_with(1, 2.0), ModelInfo{});
  const SeriesColumns columns = history.after(0);
  EXPECT_NE(find(columns, "loss"), nullptr);
  EXPECT_EQ(find(columns, "grad_norm"), nullptr);
  EXPECT_EQ(find(columns, "host_syncs"), nullptr);
}

TEST(SeriesHistory, AnOverflowThatAScalerHandlesIsASkipAndNoFault) {
  SeriesHistory history;
  StepRecord record = step_with(1, 1.0);
  record.nonfinite[1] = {0, 5, 0};
  record.skipped = record::SkipReason::amp_overflow;
  history.take(record, ModelInfo{});
  const SeriesColumns columns = history.after(0);
  EXPECT_EQ(columns.nonfinite[1].front(), 0);
  EXPECT_EQ(columns.skipped.front(), 1);
}

TEST(SeriesHistory, KeepsWhatTheLoopLogsUnderItsName) {
  SeriesHistory history;
  ModelInfo model;
  model.user_metrics = {"accuracy", "other"};
  for (std::int64_t step = 1; step <= 3; ++step) {
    StepRecord record = step_with(step, 1.0);
    record.user.fill(std::nan(""));
    record.user_count = 2;
    if (step == 2) record.user[0] = 0.25;
    history.take(record, model);
  }
  const SeriesColumns columns = history.after(0);
  const auto* accuracy = find(columns, "user.accuracy");
  ASSERT_NE(accuracy, nullptr);
  EXPECT_FALSE(accuracy->values[0]);
  EXPECT_EQ(accuracy->values[1]->last, 0.25);
  EXPECT_FALSE(accuracy->values[2]);
  EXPECT_EQ(find(columns, "user.other"), nullptr);
}

TEST(SeriesHistory, GivesOnlyWhatCameAfter) {
  SeriesHistory history;
  for (std::int64_t step = 1; step <= 10; ++step)
    history.take(step_with(step, static_cast<double>(step)), ModelInfo{});
  const SeriesColumns columns = history.after(8);
  ASSERT_EQ(columns.points.size(), 2U);
  EXPECT_EQ(columns.points.front().first, 9);
  EXPECT_EQ(find(columns, "loss")->values.front()->last, 9.0);
  EXPECT_EQ(columns.next, 9);
  EXPECT_TRUE(history.after(10).points.empty());
}

TEST(ExactColumns, AreTheRecordsAsTheyAre) {
  std::vector<StepRecord> steps;
  for (std::int64_t step = 5; step <= 7; ++step) steps.push_back(step_with(step, 0.5));
  steps[1].loss.reset();
  steps[2].nonfinite[2] = {0, 0, 3};
  const SeriesColumns columns = exact_columns(steps, ModelInfo{});
  ASSERT_EQ(columns.points.size(), 3U);
  EXPECT_EQ(columns.points[1].first, 6);
  EXPECT_EQ(columns.points[1].last, 6);
  const auto& loss = find(columns, "loss")->values;
  EXPECT_TRUE(loss[0]);
  EXPECT_FALSE(loss[1]);
  EXPECT_THAT(columns.nonfinite[2], testing::ElementsAre(0, 0, 1));
}

}  // namespace
}  // namespace gradvane::exporters
