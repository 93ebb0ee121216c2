#include "exporters/history/run_history.hpp"

#include <algorithm>
#include <unordered_map>

#include "exporters/board/param_order.hpp"
#include "exporters/finite_part.hpp"

namespace gradvane::exporters {

using record::GroupStats;
using record::ModelInfo;
using record::ParamStats;

namespace {

GridCell cell_of(const GroupStats& stats, bool counts_bad) {
  GridCell cell;
  cell.set(GridValue::grad_norm, stats.grad_norm);
  cell.set(GridValue::grad_abs_max, stats.grad_abs_max);
  cell.set(GridValue::grad_zero_ratio, stats.grad_zero_ratio);
  cell.set(GridValue::weight_norm, stats.weight_norm);
  cell.set(GridValue::update_ratio, stats.update_ratio);
  const bool is_bad = std::ranges::any_of(stats.nonfinite, record::any);
  cell.bad_steps = counts_bad && is_bad ? 1 : 0;
  return cell;
}

GridCell cell_of(const ParamStats& stats, bool counts_bad) {
  GridCell cell;
  if (stats.grad) {
    if (has_finite(*stats.grad)) {
      cell.set(GridValue::grad_norm, stats.grad->norm);
      cell.set(GridValue::grad_abs_max, stats.grad->abs_max);
    }
    cell.set(GridValue::grad_zero_ratio, zero_ratio_of(*stats.grad));
  }
  if (stats.weight && has_finite(*stats.weight))
    cell.set(GridValue::weight_norm, stats.weight->norm);
  cell.set(GridValue::update_ratio, stats.update_ratio);
  const bool is_bad = (stats.grad && nonfinite_of(*stats.grad) > 0) ||
                      (stats.weight && nonfinite_of(*stats.weight) > 0);
  cell.bad_steps = counts_bad && is_bad ? 1 : 0;
  return cell;
}

template <typename Stats>
void fill(std::vector<GridCell>& cells, const std::vector<Stats>& stats, bool counts_bad) {
  cells.clear();
  for (const Stats& row : stats) cells.push_back(cell_of(row, counts_bad));
}

/// For each of the new names its place among the old ones.
template <typename OldName, typename NewName>
std::vector<std::size_t> places(std::size_t olds, OldName old_name, std::size_t news,
                                NewName new_name) {
  std::unordered_map<std::string_view, std::size_t> known;
  for (std::size_t i = 0; i < olds; ++i) known.emplace(old_name(i), i);
  std::vector<std::size_t> result(news, GridHistory::kNewRow);
  for (std::size_t i = 0; i < news; ++i) {
    const auto found = known.find(new_name(i));
    if (found != known.end()) result[i] = found->second;
  }
  return result;
}

}  // namespace

RunHistory::RunHistory() : model_(std::make_shared<const ModelInfo>()) {}

RunHistory::~RunHistory() = default;

ExportResult RunHistory::start(const record::RunInfo& /*run*/,
                               std::shared_ptr<const ModelInfo> model) noexcept {
  open_ = true;
  return set_model(std::move(model));
}

ExportResult RunHistory::set_model(std::shared_ptr<const ModelInfo> model) noexcept try {
  if (!open_) return ExportResult::closed;
  const std::scoped_lock lock(mutex_);
  take_model(std::move(model));
  return ExportResult::ok;
} catch (...) {
  return ExportResult::failed;
}

ExportResult RunHistory::export_step(const record::StepRecord& record,
                                     const record::StepDetail& detail,
                                     const ModelInfo& model) noexcept try {
  if (!open_) return ExportResult::closed;
  const bool counts_bad = !record.is_handled_overflow();
  fill(group_cells_, detail.groups, counts_bad);
  fill(param_cells_, detail.params, counts_bad);
  const std::scoped_lock lock(mutex_);
  if (model.id != model_->id) take_model(std::make_shared<const ModelInfo>(model));
  if (SeriesHistory* series = series_.at(record.optimizer, record.run_step)) {
    series->take(record, model);
  }
  if (!group_cells_.empty()) groups_.take(record.run_step, record.time, group_cells_);
  if (!param_cells_.empty()) params_.take(record.run_step, record.time, param_cells_);
  return ExportResult::ok;
} catch (...) {
  return ExportResult::failed;
}

ExportResult RunHistory::export_incident(const record::Incident& /*incident*/) noexcept {
  return open_ ? ExportResult::ok : ExportResult::closed;  // the board has them
}

ExportResult RunHistory::export_syncs(
    std::shared_ptr<const record::SyncSummary> /*syncs*/) noexcept {
  return open_ ? ExportResult::ok : ExportResult::closed;
}

ExportResult RunHistory::set_run_state(record::RunState /*state*/,
                                       std::string_view /*reason*/) noexcept {
  return open_ ? ExportResult::ok : ExportResult::closed;
}

ExportResult RunHistory::finish(std::chrono::milliseconds /*budget*/) noexcept {
  if (!open_) return ExportResult::closed;
  open_ = false;  // what there is stays readable
  return ExportResult::ok;
}

SeriesColumns RunHistory::series(std::int32_t optimizer, std::int64_t since) const {
  const std::scoped_lock lock(mutex_);
  const SeriesHistory* found = series_.find(optimizer);
  return found == nullptr ? SeriesColumns{} : found->after(since);
}

RunHistory::Grid RunHistory::grid(const GridChoice& choice, std::int64_t since) const {
  const std::scoped_lock lock(mutex_);
  Grid result{.model = model_};
  const auto take = [&](std::size_t row) {
    ++result.matched;
    if (result.rows.size() < choice.limit) result.rows.push_back(row);
  };
  if (choice.rows == Rows::groups) {
    for (std::size_t i = 0; i < model_->groups.size(); ++i) take(i);
    result.columns = groups_.after(since, result.rows);
    return result;
  }
  for (std::size_t i = 0; i < model_->params.size(); ++i) {
    const record::ParamInfo& info = model_->params[i];
    const auto group = static_cast<std::size_t>(info.group);
    const bool is_in_group = choice.group.empty() || (group < model_->groups.size() &&
                                                      model_->groups[group] == choice.group);
    const bool is_named = choice.name.empty() || info.name == choice.name;
    if (is_in_group && is_named && param_matches(info, choice.search)) take(i);
  }
  result.columns = params_.after(since, result.rows);
  return result;
}

/// What groups and parameters with the same names were stays.
void RunHistory::take_model(std::shared_ptr<const ModelInfo> model) {
  const ModelInfo& old = *model_;
  const ModelInfo& next = *model;
  groups_.set_rows(places(
      old.groups.size(), [&](std::size_t i) { return std::string_view(old.groups[i]); },
      next.groups.size(), [&](std::size_t i) { return std::string_view(next.groups[i]); }));
  params_.set_rows(places(
      old.params.size(), [&](std::size_t i) { return std::string_view(old.params[i].name); },
      next.params.size(), [&](std::size_t i) { return std::string_view(next.params[i].name); }));
  model_ = std::move(model);
}

}  // namespace gradvane::exporters
