#include "exporters/history/point_axis.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradvane::exporters {
namespace {

constexpr std::int64_t kLongestRun = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::vector<std::size_t> PointAxis::take(std::int64_t run_step, double time) {
  if (!points_.empty() && number_of(run_step) <= number_of(points_.back().first)) {
    Point& last = points_.back();
    last.last = std::max(last.last, run_step);
    last.time = time;
    return {};
  }
  if (points_.size() < most_) return append(run_step, time);
  PointAxis next = *this;  // seldom; where there is no memory half-way, nothing has changed
  auto moved = next.append(run_step, time);
  *this = std::move(next);
  return moved;
}

std::vector<std::size_t> PointAxis::append(std::int64_t run_step, double time) {
  std::vector<std::size_t> moved;
  if (!points_.empty()) {
    while (points_.size() >= most_) {
      const auto step = join_pairs();
      if (moved.empty()) {
        moved = step;
      } else {
        for (std::size_t& to : moved) to = step[to];
      }
    }
    if (number_of(run_step) == number_of(points_.back().first)) {
      points_.back().last = run_step;
      points_.back().time = time;
      return moved;
    }
  }
  points_.push_back({run_step, run_step, time});
  return moved;
}

std::size_t PointAxis::first_after(std::int64_t since) const noexcept {
  const auto found = std::ranges::upper_bound(points_, since, {}, &Point::last);
  return static_cast<std::size_t>(found - points_.begin());
}

std::int64_t PointAxis::number_of(std::int64_t run_step) const noexcept {
  if (steps_per_point_ == kLongestRun) return 0;  // no run is that long; some files say so
  return record::subtract(run_step, 1) / steps_per_point_;
}

std::vector<std::size_t> PointAxis::join_pairs() {
  steps_per_point_ = record::add(steps_per_point_, steps_per_point_);
  std::vector<std::size_t> moved(points_.size());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const bool joins = i > 0 && number_of(points_[i].first) == number_of(points_[kept - 1].first);
    if (joins) {
      points_[kept - 1].last = points_[i].last;
      points_[kept - 1].time = points_[i].time;
    } else {
      points_[kept++] = points_[i];
    }
    moved[i] = kept - 1;
  }
  points_.resize(kept);
  return moved;
}

}  // namespace gradvane::exporters
