#include "exporters/history/grid_history.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradvane::exporters {
namespace {

std::size_t points_for(std::size_t rows) {
  const std::size_t bytes = std::max<std::size_t>(rows, 1) * sizeof(GridCell);
  return std::clamp(GridHistory::kBytes / bytes, GridHistory::kLeastPoints,
                    GridHistory::kMostPoints);
}

}  // namespace

void GridCell::join(const GridCell& other) noexcept {
  for (std::size_t i = 0; i < kGridValues; ++i)
    values[i] = record::kTensorNumbers[i].join == record::Join::min
                    ? smaller(values[i], other.values[i])
                    : larger(values[i], other.values[i]);
  const int sum = bad_steps + other.bad_steps;
  bad_steps =
      static_cast<std::uint16_t>(std::min<int>(sum, std::numeric_limits<std::uint16_t>::max()));
}

GridHistory::GridHistory(std::size_t rows) : rows_(rows), axis_(points_for(rows)) {}

void GridHistory::take(std::int64_t run_step, double time, std::span<const GridCell> cells) {
  // All memory is had before the axis changes: there must be a column for each of its points.
  if (spare_.size() != rows_) spare_.assign(rows_, GridCell{});
  columns_.reserve(kMostPoints);
  const auto moved = axis_.take(run_step, time);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    if (moved[i] == i) continue;
    if (i > 0 && moved[i] == moved[i - 1]) {
      for (std::size_t row = 0; row < rows_; ++row) columns_[moved[i]][row].join(columns_[i][row]);
    } else {
      std::swap(columns_[moved[i]], columns_[i]);
    }
  }
  if (!moved.empty()) columns_.resize(moved.back() + 1);
  if (columns_.size() < axis_.points().size()) {
    columns_.push_back(std::move(spare_));
    spare_ = {};
  }
  auto& newest = columns_.back();
  for (std::size_t row = 0; row < std::min(rows_, cells.size()); ++row)
    newest[row].join(cells[row]);
}

void GridHistory::set_rows(std::span<const std::size_t> from) {
  std::vector<std::vector<GridCell>> columns(columns_.size(), std::vector<GridCell>(from.size()));
  for (std::size_t i = 0; i < columns.size(); ++i)
    for (std::size_t row = 0; row < from.size(); ++row)
      if (from[row] < columns_[i].size()) columns[i][row] = columns_[i][from[row]];
  columns_ = std::move(columns);
  rows_ = from.size();
  axis_.set_most(points_for(rows_));
}

GridColumns GridHistory::after(std::int64_t since, std::span<const std::size_t> rows) const {
  const std::size_t from = axis_.first_after(since);
  GridColumns result;
  result.steps_per_point = axis_.steps_per_point();
  result.next = axis_.next();
  result.points.assign(axis_.points().begin() + static_cast<std::ptrdiff_t>(from),
                       axis_.points().end());
  result.cells.reserve(rows.size() * result.points.size());
  for (const std::size_t row : rows)
    for (std::size_t i = from; i < axis_.points().size(); ++i)
      result.cells.push_back(row < rows_ && i < columns_.size() ? columns_[i][row] : GridCell{});
  return result;
}

}  // namespace gradvane::exporters
