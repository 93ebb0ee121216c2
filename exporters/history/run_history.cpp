#include "exporters/history/run_history.hpp"

#include <algorithm>
#include <unordered_map>

#include "exporters/board/param_order.hpp"

namespace gradvane::exporters {

using record::GroupStats;
using record::ModelInfo;
using record::ParamStats;

namespace {

std::optional<double> value_of(const record::TensorNumber& number, const GroupStats& stats) {
  return stats.*number.group;
}

bool is_bad(const GroupStats& stats) { return std::ranges::any_of(stats.nonfinite, record::any); }
bool is_bad(const ParamStats& stats) {
  return (stats.grad && record::any(stats.grad->nonfinite)) ||
         (stats.weight && record::any(stats.weight->nonfinite));
}

template <typename Stats>
void fill(std::vector<GridCell>& cells, const std::vector<Stats>& stats, bool counts_bad) {
  cells.clear();
  for (const Stats& row : stats) {
    GridCell& cell = cells.emplace_back();
    for (std::size_t i = 0; i < kGridValues; ++i)
      cell.values[i] = code_of(value_of(record::kTensorNumbers[i], row));
    cell.bad_steps = counts_bad && is_bad(row) ? 1 : 0;
  }
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

ExportResult RunHistory::on_start(const record::RunInfo& /*run*/,
                                  const std::shared_ptr<const ModelInfo>& model) {
  return on_model(model);
}

ExportResult RunHistory::on_model(const std::shared_ptr<const ModelInfo>& model) {
  const std::scoped_lock lock(mutex_);
  take_model(model);
  return ExportResult::ok;
}

ExportResult RunHistory::on_step(const record::StepRecord& record, const record::StepDetail& detail,
                                 const ModelInfo& model) {
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
