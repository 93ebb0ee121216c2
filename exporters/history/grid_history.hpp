#pragma once
// What each of many rows (groups, parameters) was over the whole run, in a bounded amount of memory.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exporters/history/magnitude_code.hpp"
#include "exporters/history/point_axis.hpp"
#include "record/numbers.hpp"

namespace gradvane::exporters {

inline constexpr std::size_t kGridValues = record::kTensorNumbers.size();

/// One row in one step, or what several steps make together: the largest of each number, the smallest of those
/// that are a minimum.
struct GridCell {
  /// By row of the number table.
  std::array<MagnitudeCode, kGridValues> values = [] {
    std::array<MagnitudeCode, kGridValues> none{};
    none.fill(kNoMagnitude);
    return none;
  }();
  std::uint16_t bad_steps = 0;  ///< steps that were not finite; 65,535 and more are one

  void join(const GridCell& other) noexcept;
};

/// What was asked of a grid: `rows` outside, points inside.
struct GridColumns {
  std::int64_t steps_per_point = 1;
  std::int64_t next = 0;
  std::vector<Point> points;
  std::vector<GridCell> cells;  ///< row major
};

class GridHistory {
 public:
  static constexpr std::size_t kMostPoints = 512;
  static constexpr std::size_t kLeastPoints = 2;
  static constexpr std::size_t kBytes = 16UL * 1024 * 1024;

  explicit GridHistory(std::size_t rows);

  /// @param cells  one a row; rows that it does not have were not measured
  /// Where there is no memory it throws, and nothing has changed.
  void take(std::int64_t run_step, double time, std::span<const GridCell> cells);
  /// Of the rows named, the points with a step after `since`.
  [[nodiscard]] GridColumns after(std::int64_t since, std::span<const std::size_t> rows) const;
  /// The rows change. @param from  for each new row its number so far; one there was not is kNewRow
  void set_rows(std::span<const std::size_t> from);
  static constexpr std::size_t kNewRow = static_cast<std::size_t>(-1);

 private:
  std::size_t rows_;
  PointAxis axis_;
  std::vector<std::vector<GridCell>> columns_;  ///< one a point
  std::vector<GridCell> spare_;                 ///< becomes the next of them
};

}  // namespace gradvane::exporters
