#pragma once
// The steps of a whole run in a bounded number of points, however long it lasts.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "record/saturating.hpp"

namespace gradvane::exporters {

/// The run steps that one point stands for.
struct Point {
  std::int64_t first = 0;
  std::int64_t last = 0;
  double time = 0;  ///< wall clock of its last step, seconds since the epoch
};

/// Points of as many steps each, a power of two. When there is no room for one more, two become one.
class PointAxis {
 public:
  /// @param most  points, at least 2
  explicit PointAxis(std::size_t most) { set_most(most); }

  /// Takes a step in. The last point is then the one it belongs to; what belongs to an earlier point,
  /// as after a counter was set back, goes to the last one too. What it throws leaves all as it was.
  /// @return  empty, or where each earlier point went: two with the same number were joined
  [[nodiscard]] std::vector<std::size_t> take(std::int64_t run_step, double time);

  /// Takes effect with the next step.
  void set_most(std::size_t most) noexcept { most_ = most < 2 ? 2 : most; }
  [[nodiscard]] const std::vector<Point>& points() const noexcept { return points_; }
  [[nodiscard]] std::int64_t steps_per_point() const noexcept { return steps_per_point_; }
  /// Index of the first point with a step after `since`.
  [[nodiscard]] std::size_t first_after(std::int64_t since) const noexcept;
  /// What to ask first_after() for next time: the last point is still growing and comes again.
  [[nodiscard]] std::int64_t next() const noexcept {
    return points_.empty() ? 0 : record::subtract(points_.back().first, 1);
  }

 private:
  [[nodiscard]] std::int64_t number_of(std::int64_t run_step) const noexcept;
  [[nodiscard]] std::vector<std::size_t> join_pairs();
  [[nodiscard]] std::vector<std::size_t> append(std::int64_t run_step, double time);

  std::size_t most_ = 2;
  std::int64_t steps_per_point_ = 1;
  std::vector<Point> points_;
};

}  // namespace gradvane::exporters
