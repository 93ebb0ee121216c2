// What a history looks like after memory ran out in the middle of a step.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <new>

#include "exporters/history/grid_history.hpp"
#include "exporters/history/series_history.hpp"

namespace {

thread_local int allocations_left = -1;  ///< -1: any number

void* allocate(std::size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace gradvane::exporters {
namespace {

/// False where the memory did not suffice.
bool with_allocations(int count, const std::function<void()>& act) {
  allocations_left = count;
  bool has_sufficed = true;
  try {
    act();
  } catch (const std::bad_alloc&) {
    has_sufficed = false;
  }
  allocations_left = -1;
  return has_sufficed;
}

record::StepRecord step_with(std::int64_t step) {
  record::StepRecord record;
  record.step = record.run_step = step;
  record.time = static_cast<double>(step);
  record.loss = record.grad_norm = static_cast<double>(step);
  record.user[0] = 1;
  record.user_count = step % 2 == 0 ? 1 : 0;
  return record;
}

record::ModelInfo model_with_a_metric() {
  record::ModelInfo model;
  model.user_metrics = {"accuracy of the validation set, as the loop logs it"};
  return model;
}

void expect_equal_lengths(const SeriesHistory& history) {
  const SeriesColumns columns = history.after(0);
  const std::size_t count = columns.points.size();
  ASSERT_LE(count, SeriesHistory::kPoints);
  ASSERT_EQ(columns.own.size(), count);
  ASSERT_EQ(columns.skipped.size(), count);
  for (const auto& column : columns.nonfinite) ASSERT_EQ(column.size(), count);
  for (const auto& series : columns.series) {
    ASSERT_EQ(series.values.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      if (!series.values[i] || series.name != "loss") continue;
      ASSERT_LE(series.values[i]->max, static_cast<double>(columns.points[i].last));
      ASSERT_GE(series.values[i]->min, static_cast<double>(columns.points[i].first));
    }
  }
}

TEST(NoMemory, TheSeriesOfARunStayOfOneLengthWhereverItRunsOut) {
  const record::ModelInfo model = model_with_a_metric();
  // Nothing yet; columns that grow; and an axis that is full, so that its points are joined.
  for (const std::int64_t steps : {0, 3, 64, 1024}) {
    SeriesHistory begun;
    for (std::int64_t step = 1; step <= steps; ++step) begun.take(step_with(step), model);
    int failures = 0;
    bool has_sufficed = false;
    for (int count = 0; !has_sufficed; ++count) {
      ASSERT_LT(count, 1000);
      SeriesHistory history = begun;
      // Other points than the next one too: it may be far on.
      const auto next = steps + 2 * (1 + count % 2);
      has_sufficed = with_allocations(count, [&] { history.take(step_with(next), model); });
      failures += has_sufficed ? 0 : 1;
      expect_equal_lengths(history);
      for (std::int64_t step = next + 1; step < next + 1100; ++step)
        history.take(step_with(step), model);
      expect_equal_lengths(history);
    }
    EXPECT_GE(failures, 1) << "nothing was allocated, so nothing was tried: " << steps;
  }
}

TEST(NoMemory, AGridHasAColumnForEachPointWhereverItRunsOut) {
  constexpr std::size_t kRows = 8192;  // 170 points
  const std::vector<std::size_t> rows{0, kRows - 1};
  std::vector<GridCell> cells(kRows);
  for (GridCell& cell : cells) cell.bad_steps = 1;
  for (const std::int64_t steps : {0, 3, 170}) {
    bool has_sufficed = false;
    for (int count = 0; !has_sufficed; ++count) {
      ASSERT_LT(count, 1000);
      GridHistory grid(kRows);
      for (std::int64_t step = 1; step <= steps; ++step) grid.take(step, 0, cells);
      has_sufficed = with_allocations(count, [&] { grid.take(steps + 1, 0, cells); });
      for (std::int64_t step = steps + 2; step < steps + 400; ++step) grid.take(step, 0, cells);
      const GridColumns columns = grid.after(0, rows);
      int bad = 0;
      for (std::size_t i = 0; i < columns.points.size(); ++i) bad += columns.cells[i].bad_steps;
      EXPECT_EQ(bad, steps + 398 + (has_sufficed ? 1 : 0))
          << "each step that was taken counts once";
    }
  }
}

}  // namespace
}  // namespace gradvane::exporters
