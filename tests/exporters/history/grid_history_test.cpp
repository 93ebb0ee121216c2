#include "exporters/history/grid_history.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace gradvane::exporters {
namespace {

GridCell cell(double norm, bool is_bad = false) {
  GridCell made;
  made.values[0] = code_of(norm);
  made.bad_steps = is_bad ? 1 : 0;
  return made;
}

double norm_of(const GridCell& of) { return magnitude_of(of.values[0]).value_or(-1); }

std::vector<std::size_t> all(std::size_t count) {
  std::vector<std::size_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0U);
  return rows;
}

TEST(GridHistory, KeepsTheLargestOfThePointsSteps) {
  GridHistory grid(2);
  constexpr std::int64_t kSteps = 5'000;
  const auto norm_at = [](std::int64_t step, std::size_t row) {
    return 1.0 + static_cast<double>((step * 7919 + static_cast<std::int64_t>(row) * 31) % 997);
  };
  for (std::int64_t step = 1; step <= kSteps; ++step)
    grid.take(step, 0, std::vector{cell(norm_at(step, 0)), cell(norm_at(step, 1))});

  const GridColumns columns = grid.after(0, all(2));
  const std::size_t width = columns.points.size();
  ASSERT_LE(width, GridHistory::kMostPoints);
  ASSERT_EQ(columns.cells.size(), 2 * width);
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t i = 0; i < width; ++i) {
      double most = 0;
      for (auto step = columns.points[i].first; step <= columns.points[i].last; ++step)
        most = std::max(most, norm_at(step, row));
      ASSERT_NEAR(norm_of(columns.cells[row * width + i]) / most, 1, 0.002);
    }
  }
}

TEST(GridHistory, KeepsTheSmallestOfANumberThatIsAMinimum) {
  for (std::size_t i = 0; i < kGridValues; ++i) {
    GridCell sum, other;
    sum.values[i] = code_of(2.0);
    other.values[i] = code_of(8.0);
    sum.join(other);
    sum.join(GridCell{});  // not measured
    const bool is_minimum = record::kTensorNumbers[i].join == record::Join::min;
    EXPECT_EQ(magnitude_of(sum.values[i]), is_minimum ? 2.0 : 8.0) << record::kTensorNumbers[i].key;
  }
}

TEST(GridHistory, NeverLosesABadStep) {
  GridHistory grid(1);
  for (std::int64_t step = 1; step <= 100'000; ++step)
    grid.take(step, 0, std::vector{cell(1.0, step == 4'321 || step == 77'777)});
  int bad = 0;
  for (const GridCell& one : grid.after(0, all(1)).cells) bad += one.bad_steps;
  EXPECT_EQ(bad, 2);
}

TEST(GridHistory, CountsMoreBadStepsThanFitAsManyAsFit) {
  GridCell sum = cell(1.0);
  sum.bad_steps = 65'000;
  GridCell more = cell(1.0);
  more.bad_steps = 65'000;
  sum.join(more);
  EXPECT_EQ(sum.bad_steps, 65'535);
}

TEST(GridHistory, StaysWithinItsMemoryForAHundredThousandRows) {
  constexpr std::size_t kRows = 100'000;
  GridHistory grid(kRows);
  const std::vector<GridCell> cells(kRows, cell(1.0));
  for (std::int64_t step = 1; step <= 40; ++step) grid.take(step, 0, cells);
  const std::size_t points = grid.after(0, {}).points.size();
  EXPECT_LE(points * kRows * sizeof(GridCell), GridHistory::kBytes);
  EXPECT_GE(points, 5U);
}

TEST(GridHistory, RowsKeepTheirPastWhenTheModelChanges) {
  GridHistory grid(3);
  grid.take(1, 0, std::vector{cell(1), cell(2), cell(3)});
  const std::vector<std::size_t> from{2, GridHistory::kNewRow};  // the third row, then a new one
  grid.set_rows(from);
  grid.take(2, 0, std::vector{cell(30), cell(40)});
  const GridColumns columns = grid.after(0, all(2));
  EXPECT_EQ(norm_of(columns.cells[0]), 3);
  EXPECT_NEAR(norm_of(columns.cells[1]), 30, 0.06);
  EXPECT_EQ(norm_of(columns.cells[2]), -1);  // not measured
  EXPECT_NEAR(norm_of(columns.cells[3]), 40, 0.08);
}

TEST(GridHistory, ARowWithoutCellsWasNotMeasured) {
  GridHistory grid(2);
  grid.take(1, 0, std::vector{cell(1)});
  const GridColumns columns = grid.after(0, all(2));
  EXPECT_EQ(norm_of(columns.cells[0]), 1);
  EXPECT_EQ(norm_of(columns.cells[1]), -1);
}

TEST(GridHistory, ARowThatIsNotThereIsEmpty) {
  GridHistory grid(1);
  grid.take(1, 0, std::vector{cell(1)});
  const std::vector<std::size_t> rows{7};
  EXPECT_EQ(norm_of(grid.after(0, rows).cells.at(0)), -1);
}

}  // namespace
}  // namespace gradvane::exporters
