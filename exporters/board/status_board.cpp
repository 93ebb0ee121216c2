#include "exporters/board/status_board.hpp"

#include <algorithm>
#include <cmath>

namespace gradvane::exporters {

using record::NonfiniteCounts;
using record::NonfiniteKind;
using record::Site;
using record::TensorNumbers;

namespace {

bool is_bad(const std::optional<TensorNumbers>& numbers) {
  return numbers && record::any(numbers->nonfinite);
}

/// The kind, where only one kind was there.
std::optional<NonfiniteKind> only_kind(const NonfiniteCounts& counts) {
  std::optional<NonfiniteKind> kind;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] <= 0) continue;
    if (kind) return std::nullopt;
    kind = static_cast<NonfiniteKind>(i);
  }
  return kind;
}

template <typename T>
void note(std::optional<Dated<T>>& place, const std::optional<T>& value, std::int64_t run_step) {
  if (value) place = Dated<T>{*value, run_step};
}

void note_step(LatestNumbers& row, const record::StepRecord& record) {
  row.latest = record;
  if (record.loss && std::isfinite(*record.loss)) note(row.loss, record.loss, record.run_step);
  note(row.weight_norm, record.weight_norm, record.run_step);
  note(row.update_ratio, record.update_ratio, record.run_step);
}

}  // namespace

/// The mutex orders a reader's last look at a table before the worker writes into it again.
struct StatusBoard::TablePool {
  std::mutex mutex;
  std::vector<std::unique_ptr<ParamTable>> free;

  TablePool() { free.reserve(kMost); }

  std::unique_ptr<ParamTable> take() {
    const std::scoped_lock lock(mutex);
    if (free.empty()) return std::make_unique<ParamTable>();
    auto table = std::move(free.back());
    free.pop_back();
    return table;
  }

  void give_back(const ParamTable* done) noexcept {
    std::unique_ptr<ParamTable> table(const_cast<ParamTable*>(done));  // made writable, by take()
    const std::scoped_lock lock(mutex);
    if (free.size() < kMost) free.push_back(std::move(table));
  }

  static constexpr std::size_t kMost = 2;  // the one just replaced, and one that a reader held
};

StatusBoard::StatusBoard(std::size_t history)
    : pool_(std::make_shared<TablePool>()), capacity_(std::max<std::size_t>(history, 1)) {
  now_.model = std::make_shared<const record::ModelInfo>();
  now_.syncs = std::make_shared<const record::SyncSummary>();
  table_.model = now_.model;
  publish();
  publish_params();
}

StatusBoard::~StatusBoard() = default;

ExportResult StatusBoard::on_start(const record::RunInfo& run,
                                   const std::shared_ptr<const record::ModelInfo>& model) {
  now_.run = std::make_shared<const record::RunInfo>(run);
  take_model(model);
  publish();
  publish_params();
  return ExportResult::ok;
}

ExportResult StatusBoard::on_model(const std::shared_ptr<const record::ModelInfo>& model) {
  take_model(model);
  publish();
  publish_params();
  return ExportResult::ok;
}

ExportResult StatusBoard::on_step(const record::StepRecord& record,
                                  const record::StepDetail& detail,
                                  const record::ModelInfo& model) {
  if (model.id != now_.model->id) take_model(std::make_shared<const record::ModelInfo>(model));

  note_step(now_, record);
  if (LatestNumbers* row = now_.optimizers.at(record.optimizer, record.run_step)) {
    note_step(*row, record);
  }
  now_.lead.note(record);
  note(now_.process_resident_bytes, record.process_resident_bytes, record.run_step);
  note(now_.device_allocated_bytes, record.device_allocated_bytes, record.run_step);
  now_.steps += record.is_step() ? 1 : 0;
  now_.records_dropped += record.dropped_before;
  if (record.skipped != record::SkipReason::none) ++now_.skipped_steps;
  if (record.step_seconds) {
    now_.agent_seconds += record.agent_seconds;
    now_.timed_seconds += *record.step_seconds;
  }
  note_groups(record, detail);
  note_params(record, detail);
  note_first_bad(record);
  {
    const std::scoped_lock lock(mutex_);
    if (history_.size() >= capacity_) history_.pop_front();
    history_.push_back(record);
    ++taken_;
  }
  publish_params();
  publish();
  return ExportResult::ok;
}

ExportResult StatusBoard::on_incident(const record::Incident& incident) {
  auto& known = now_.incidents;
  const auto same = std::ranges::find(known, incident.id, &record::Incident::id);
  if (same != known.end()) {
    *same = incident;
  } else if (incident.id > now_.incidents_total) {
    now_.incidents_total = incident.id;
    known.insert(known.begin(), incident);
    if (known.size() > kMaxIncidents) known.pop_back();
  }
  publish();
  return ExportResult::ok;
}

ExportResult StatusBoard::on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) {
  now_.syncs = syncs;
  publish();
  return ExportResult::ok;
}

ExportResult StatusBoard::on_settings(const std::vector<record::Setting>& settings) {
  auto run = std::make_shared<record::RunInfo>(*now_.run);
  run->settings = settings;
  now_.run = std::move(run);
  publish();
  return ExportResult::ok;
}

ExportResult StatusBoard::on_governor(const record::GovernorSummary& summary) {
  now_.governor = summary;
  publish();
  return ExportResult::ok;
}

ExportResult StatusBoard::on_run_state(record::RunState state, std::string_view reason) {
  now_.state = state;
  now_.reason = reason;
  publish();
  return ExportResult::ok;
}

std::shared_ptr<const Status> StatusBoard::status() const {
  const std::scoped_lock lock(mutex_);
  return status_;
}

std::shared_ptr<const ParamTable> StatusBoard::params() const {
  const std::scoped_lock lock(mutex_);
  return params_;
}

std::vector<record::StepRecord> StatusBoard::steps(std::int64_t since, std::size_t limit) const {
  const std::scoped_lock lock(mutex_);
  std::vector<record::StepRecord> result;
  for (const record::StepRecord& record : history_) {
    if (record.run_step <= since) continue;
    if (result.size() >= limit && record.run_step != result.back().run_step) break;
    result.push_back(record);
  }
  return result;
}

TakenSteps StatusBoard::steps_of(std::int32_t optimizer, std::uint64_t since,
                                 std::size_t count) const {
  const std::scoped_lock lock(mutex_);
  TakenSteps result{.next = taken_};
  std::uint64_t number = taken_;  // of the record at hand, from 1
  for (auto record = history_.rbegin(); record != history_.rend() && number > since;
       ++record, --number) {
    if (result.steps.size() >= count) break;
    if (record->optimizer == optimizer) result.steps.push_back(*record);
  }
  std::ranges::reverse(result.steps);
  return result;
}

/// Keeps what is known of parameters and groups that are still there, by name.
void StatusBoard::take_model(std::shared_ptr<const record::ModelInfo> model) {
  std::unordered_map<std::string_view, ParamRow*> params;
  for (std::size_t i = 0; i < table_.rows.size(); ++i) {
    params.emplace(table_.model->params[i].name, &table_.rows[i]);
  }
  std::vector<ParamRow> rows(model->params.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto known = params.find(model->params[i].name);
    if (known != params.end()) rows[i] = *known->second;
  }

  std::unordered_map<std::string_view, GroupRow*> groups;
  for (std::size_t i = 0; i < now_.groups.size(); ++i) {
    groups.emplace(now_.model->groups[i], &now_.groups[i]);
  }
  std::vector<GroupRow> group_rows(model->groups.size());
  for (std::size_t i = 0; i < group_rows.size(); ++i) {
    const auto known = groups.find(model->groups[i]);
    if (known != groups.end()) group_rows[i] = *known->second;
  }

  table_.rows = std::move(rows);
  table_.model = model;
  now_.groups = std::move(group_rows);
  now_.model = std::move(model);
}

void StatusBoard::note_params(const record::StepRecord& record, const record::StepDetail& detail) {
  table_.run_step = record.run_step;
  const std::size_t count = std::min(table_.rows.size(), detail.params.size());
  for (std::size_t i = 0; i < count; ++i) {
    const record::ParamStats& stats = detail.params[i];
    ParamRow& row = table_.rows[i];
    row.state = stats.state;
    note(row.grad, stats.grad, record.run_step);
    note(row.weight, stats.weight, record.run_step);
    note(row.update_ratio, stats.update_ratio, record.run_step);

    const bool grad_bad = is_bad(stats.grad);
    if (!grad_bad && !is_bad(stats.weight)) continue;
    ++row.nonfinite_steps;
    if (row.first_bad) continue;
    const Site site = grad_bad ? Site::grad : Site::weight;
    const TensorNumbers& numbers = grad_bad ? *stats.grad : *stats.weight;
    row.first_bad =
        BadElement{record.run_step, site, only_kind(numbers.nonfinite), numbers.first_nonfinite};
    const auto& blamed = record.first_by_site[index_of(site)];
    if (blamed && blamed->param == static_cast<std::int32_t>(i)) {
      row.first_bad->kind = blamed->kind;
      row.first_bad->element = blamed->element;
    }
  }
}

void StatusBoard::note_groups(const record::StepRecord& record, const record::StepDetail& detail) {
  const std::size_t count = std::min(now_.groups.size(), detail.groups.size());
  for (std::size_t i = 0; i < count; ++i) {
    GroupRow& row = now_.groups[i];
    // Another optimizer's step reads none of the group's gradients, and says nothing of them.
    if (detail.groups[i].params > 0) row.latest = detail.groups[i];
    for (std::size_t n = 0; n < record::kTensorNumbers.size(); ++n) {
      const record::TensorNumber& number = record::kTensorNumbers[n];
      if (number.site == Site::weight)
        note(row.of_weights[n], detail.groups[i].*number.group, record.run_step);
    }
  }
}

void StatusBoard::note_first_bad(const record::StepRecord& record) {
  if (now_.first_bad || !record.first_nonfinite) return;
  // Overflow that a gradient scaler handled is not a fault.
  if (record.is_handled_overflow()) return;
  const record::FirstNonfinite& first = *record.first_nonfinite;
  FirstBad bad;
  bad.what = {record.run_step, first.site, first.kind, first.element};
  bad.param = now_.model->param_name(first.param);
  now_.first_bad = std::move(bad);
}

void StatusBoard::publish() {
  auto status = std::make_shared<const Status>(now_);
  const std::scoped_lock lock(mutex_);
  status_.swap(status);
}

/// Copies the table into one that nobody reads any more: in the steady state no rows are allocated,
/// however large the model is.
void StatusBoard::publish_params() {
  std::unique_ptr<ParamTable> table = pool_->take();
  *table = table_;
  std::shared_ptr<const ParamTable> published(
      table.release(), [pool = pool_](const ParamTable* done) { pool->give_back(done); });
  const std::scoped_lock lock(mutex_);
  params_.swap(published);
}

}  // namespace gradvane::exporters
