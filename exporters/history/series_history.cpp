#include "exporters/history/series_history.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>
#include <utility>

#include "record/numbers.hpp"

namespace gradvane::exporters {

using record::ModelInfo;
using record::StepRecord;

namespace {

constexpr std::size_t kSites = record::kSites;

/// That something was not finite is counted, not drawn.
std::optional<double> finite(std::optional<double> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

bool is_charted(const record::StepNumber& number) { return number.is_charted; }
auto charted() { return record::kStepNumbers | std::views::filter(is_charted); }

/// Numbers of the loop's own that were logged in this step, with their names.
template <typename Take>
void each_user_metric(const StepRecord& record, const ModelInfo& model, Take take) {
  const auto count = std::min({static_cast<std::size_t>(std::max(record.user_count, 0)),
                               record.user.size(), model.user_metrics.size()});
  for (std::size_t i = 0; i < count; ++i)
    if (const auto value = finite(record.user[i])) take(model.user_metrics[i], *value);
}

std::string user_name(const std::string& name) { return "user." + name; }

/// Overflow that a gradient scaler got over is no event: the step counts as skipped.
std::int64_t bad(const StepRecord& record, std::size_t site) {
  if (record.is_handled_overflow()) return 0;
  return record.has_nonfinite(static_cast<record::Site>(site)) ? 1 : 0;
}

std::int64_t skipped(const StepRecord& record) {
  return record.skipped != record::SkipReason::none ? 1 : 0;
}

/// Brings entries to where their points went; those that meet there become one.
template <typename T, typename Combine>
void fold(std::vector<T>& column, const std::vector<std::size_t>& moved, Combine combine) {
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const bool joins = i > 0 && moved[i] == moved[i - 1];
    column[moved[i]] = joins ? combine(column[moved[i]], column[i]) : column[i];
  }
  column.resize(moved.back() + 1);
}

/// The series of that name, which is made where there is none.
SeriesColumns::Series& named(std::vector<SeriesColumns::Series>& all, const std::string& name) {
  const auto known = std::ranges::find(all, name, &SeriesColumns::Series::name);
  return known != all.end() ? *known : all.emplace_back(SeriesColumns::Series{name, {}});
}

std::optional<Extent> joined(const std::optional<Extent>& a, const std::optional<Extent>& b) {
  if (!a || !b) return a ? a : b;
  return Extent{b->last, std::min(a->min, b->min), std::max(a->max, b->max)};
}

/// Afterwards a column can have one entry more, and be joined, without memory.
template <typename T>
void make_room(std::vector<T>& column, std::size_t count) {
  if (column.capacity() < count) column.reserve(std::max(count, 2 * column.capacity()));
}

}  // namespace

SeriesHistory::SeriesHistory() : axis_(kPoints) {
  for (const record::StepNumber& number : charted())
    series_.push_back({std::string(number.key), {}});
}

/// All memory is had before the axis changes: columns must never be longer than it.
void SeriesHistory::take(const StepRecord& record, const ModelInfo& model) {
  const std::size_t room = axis_.points().size() + 1;
  for (Series& series : series_)
    if (!series.values.empty()) make_room(series.values, room);
  make_room(own_, room);
  for (auto& column : nonfinite_) make_room(column, room);
  make_room(skipped_, room);
  const auto moved = axis_.take(record.run_step, record.time);
  if (!moved.empty()) join(moved);
  const std::size_t count = axis_.points().size();
  own_.resize(count, OwnSteps{.first = record.step});
  own_.back().last = record.step;
  for (std::size_t site = 0; site < kSites; ++site) {
    nonfinite_[site].resize(count);
    nonfinite_[site].back() += bad(record, site);
  }
  skipped_.resize(count);
  skipped_.back() += skipped(record);
  std::size_t i = 0;
  for (const record::StepNumber& number : charted())
    note(series_[i++], finite(value_of(number, record)));
  each_user_metric(record, model, [this](const std::string& name, double value) {
    note(named(series_, user_name(name)), value);
  });
}

void SeriesHistory::note(Series& series, std::optional<double> value) const {
  if (!value) return;
  series.values.resize(axis_.points().size());
  series.values.back() = joined(series.values.back(), Extent{*value, *value, *value});
}

/// Columns of series may be shorter than the axis: what lies behind their end was not measured. take() has
/// made room.
void SeriesHistory::join(const std::vector<std::size_t>& moved) noexcept {
  for (Series& series : series_) {
    if (series.values.empty()) continue;
    series.values.resize(moved.size());
    fold(series.values, moved, joined);
  }
  fold(own_, moved, [](OwnSteps a, OwnSteps b) { return OwnSteps{a.first, b.last}; });
  for (auto& column : nonfinite_) fold(column, moved, std::plus());
  fold(skipped_, moved, std::plus());
}

SeriesColumns SeriesHistory::after(std::int64_t since) const {
  const std::size_t from = axis_.first_after(since);
  const auto tail = [from](const auto& column) {
    return std::decay_t<decltype(column)>(column.begin() + static_cast<std::ptrdiff_t>(from),
                                          column.end());
  };
  SeriesColumns columns;
  columns.steps_per_point = axis_.steps_per_point();
  columns.next = axis_.next();
  columns.points = tail(axis_.points());
  columns.own = tail(own_);
  for (const Series& series : series_) {
    if (series.values.empty()) continue;
    std::vector<std::optional<Extent>> values(axis_.points().size());
    std::copy_n(series.values.begin(), std::min(values.size(), series.values.size()),
                values.begin());
    columns.series.push_back({series.name, tail(values)});
  }
  for (std::size_t site = 0; site < kSites; ++site)
    columns.nonfinite[site] = tail(nonfinite_[site]);
  columns.skipped = tail(skipped_);
  return columns;
}

SeriesColumns exact_columns(const std::vector<StepRecord>& steps, const ModelInfo& model) {
  SeriesColumns columns;
  columns.skipped.reserve(steps.size());
  for (const StepRecord& record : steps) {
    columns.points.push_back({record.run_step, record.run_step, record.time});
    columns.own.push_back({record.step, record.step});
    columns.skipped.push_back(skipped(record));
    for (std::size_t site = 0; site < kSites; ++site)
      columns.nonfinite[site].push_back(bad(record, site));
  }
  const auto put = [&](SeriesColumns::Series& series, std::size_t i, double value) {
    series.values.resize(steps.size());
    series.values[i] = Extent{value, value, value};
  };
  for (const record::StepNumber& measured : charted()) {
    SeriesColumns::Series series{std::string(measured.key), {}};
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (const auto value = finite(value_of(measured, steps[i]))) put(series, i, *value);
    if (!series.values.empty()) columns.series.push_back(std::move(series));
  }
  for (std::size_t i = 0; i < steps.size(); ++i)
    each_user_metric(steps[i], model, [&](const std::string& name, double value) {
      put(named(columns.series, user_name(name)), i, value);
    });
  return columns;
}

}  // namespace gradvane::exporters
