#include "exporters/prometheus/prometheus_exporter.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "record/names.hpp"
#include "record/numbers.hpp"
#include "record/run/end_reason.hpp"

namespace gradvane::exporters {

using record::Metric;
using record::NonfiniteCounts;
using record::Site;

namespace {

void set_if(MetricSet& metrics, Metric metric, const std::optional<double>& value,
            MetricSet::LabelValues labels = {}) {
  if (value) metrics.set(metric, *value, labels);
}

void add_if_positive(MetricSet& metrics, Metric metric, double amount,
                     MetricSet::LabelValues labels = {}) {
  if (amount > 0) metrics.add(metric, amount, labels);
}

/// A series for each kind, so that its counters stand at 0 before they count.
void make_bad_step_counters(MetricSet& metrics, Site site, std::string_view group) {
  for (const auto kind : record::kNames<record::NonfiniteKind>) {
    metrics.add(Metric::nonfinite_steps_total, 0, {name_of(site), kind, group});
  }
}

}  // namespace

ExportResult PrometheusExporter::on_start(const record::RunInfo& run,
                                          const std::shared_ptr<const record::ModelInfo>& model) {
  const auto whole = metrics_->hold();
  metrics_->set(Metric::run_info, 1,
                {run.run_id, std::to_string(run.world_size), std::to_string(run.local_rank),
                 run.torch_version});
  // A rank that the world has no room for: a launcher gave the one and not the other.
  if (run.rank < run.world_size) metrics_->set(Metric::world_size, run.world_size);
  metrics_->set(Metric::build_info, 1, {run.version});
  metrics_->set(Metric::run_start_timestamp_seconds, run.start_time);
  make_bad_step_counters(*metrics_, Site::loss, record::kLossGroup);
  for (const Site site : {Site::loss, Site::grad, Site::weight}) {
    make_bad_step_counters(*metrics_, site, record::kUnknownGroup);
  }
  syncs_.start();
  take_model(*model);
  return on_run_state(record::RunState::starting, {});
}

ExportResult PrometheusExporter::on_model(const std::shared_ptr<const record::ModelInfo>& model) {
  const auto whole = metrics_->hold();
  take_model(*model);
  return ExportResult::ok;
}

ExportResult PrometheusExporter::on_step(const record::StepRecord& record,
                                         const record::StepDetail& detail,
                                         const record::ModelInfo& model) {
  const auto whole = metrics_->hold();
  if (model.id != model_id_) take_model(model);
  has_stepped_ = true;
  export_time(record);
  export_numbers(record, model);
  export_groups(detail);
  export_nonfinite(record, detail, model);
  syncs_.put(record);
  return ExportResult::ok;
}

ExportResult PrometheusExporter::on_incident(const record::Incident& incident) {
  const auto whole = metrics_->hold();
  incidents_.put(incident);
  return ExportResult::ok;
}

ExportResult PrometheusExporter::on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) {
  const auto whole = metrics_->hold();
  syncs_.put(*syncs);
  return ExportResult::ok;
}

ExportResult PrometheusExporter::on_governor(const record::GovernorSummary& summary) {
  const auto whole = metrics_->hold();
  if (summary.ranks_agree) metrics_->set(Metric::ranks_agree, *summary.ranks_agree ? 1 : 0);
  if (!summary.has_snapshots) return ExportResult::ok;
  for (std::size_t i = 0; i < summary.snapshots.size(); ++i)
    metrics_->raise_to(Metric::snapshots_total, static_cast<double>(summary.snapshots[i]),
                       {record::kNames<record::SnapshotResult>[i]});
  for (std::size_t i = 0; i < summary.rollbacks.size(); ++i)
    metrics_->raise_to(Metric::rollbacks_total, static_cast<double>(summary.rollbacks[i]),
                       {record::kNames<record::RollbackReason>[i]});
  if (summary.newest_snapshot)
    metrics_->set(Metric::snapshot_age_seconds, summary.newest_snapshot->age_seconds);
  else
    metrics_->remove(Metric::snapshot_age_seconds);
  return ExportResult::ok;
}

ExportResult PrometheusExporter::on_run_state(record::RunState state, std::string_view reason) {
  const auto whole = metrics_->hold();
  for (const auto name : record::kNames<record::RunState>) {
    metrics_->set(Metric::run_state, name == name_of(state) ? 1 : 0, {name});
  }
  const bool is_over = state == record::RunState::finished || state == record::RunState::failed;
  const record::EndReason why = record::end_reason(state, reason);
  for (const auto name : record::kNames<record::EndReason>) {
    if (is_over && name == name_of(why))
      metrics_->set(Metric::run_end_info, 1, {name});
    else
      metrics_->remove(Metric::run_end_info, {name});
  }
  return ExportResult::ok;
}

void PrometheusExporter::take_model(const record::ModelInfo& model) {
  if (has_stepped_ && model.id != model_id_) metrics_->add(Metric::plan_rebuilds_total, 1);
  model_id_ = model.id;
  const std::vector<std::string> shown =
      model.groups.size() <= most_groups_ ? model.groups : std::vector<std::string>();
  for (const std::string& group : groups_) {
    if (std::ranges::find(shown, group) != shown.end()) continue;
    for (const record::TensorNumber& number : record::kTensorNumbers)
      metrics_->remove(number.metric, {group});
  }
  groups_ = shown;
  for (const record::DeviceInfo& gone : devices_)
    metrics_->remove(Metric::device_info, {gone.device, gone.uuid, gone.name});
  devices_ = model.devices;
  for (const record::DeviceInfo& device : devices_)
    metrics_->set(Metric::device_info, 1, {device.device, device.uuid, device.name});
}

void PrometheusExporter::export_time(const record::StepRecord& record) {
  MetricSet& metrics = *metrics_;
  metrics.add(Metric::steps_total,
              (record.is_step() ? 1.0 : 0.0) + static_cast<double>(record.dropped_before));
  if (record.is_step()) metrics.add(Metric::micro_steps_total, record.micro_steps);
  metrics.add(Metric::records_dropped_total, static_cast<double>(record.dropped_before),
              {"ring_overrun"});
  metrics.set(Metric::run_step, static_cast<double>(record.run_step));
  metrics.set(Metric::last_step_timestamp_seconds, record.time);
  if (record.step_seconds) metrics.observe(Metric::step_duration_seconds, *record.step_seconds);
  for (std::size_t phase = 0; phase < record::kPhases; ++phase) {
    add_if_positive(metrics, Metric::phase_seconds_total, record.phase_seconds[phase],
                    {record::kNames<record::Phase>[phase]});
  }
  add_if_positive(metrics, Metric::agent_seconds_total, record.agent_seconds, {"hooks"});
  if (record.rank_wait_seconds)
    metrics.add(Metric::rank_wait_seconds_total, *record.rank_wait_seconds);
  if (record.tokens) metrics.add(Metric::tokens_total, *record.tokens);
  if (record.samples) metrics.add(Metric::samples_total, *record.samples);
}

/// With the first step beside the leader's the numbers get a label that says whose they are, until
/// another training begins.
void PrometheusExporter::note_optimizer(const record::StepRecord& record) {
  const std::int32_t before = lead_.optimizer();
  lead_.note(record);
  if (lead_.optimizer() != before) {
    forget_unlabelled();
    forget_optimizer(before);
    for (const std::int32_t gone : in_turns_.optimizers()) forget_optimizer(gone);
    in_turns_ = {};
  }
  const bool is_beside = record.is_step() && record.optimizer != lead_.optimizer();
  if (is_beside && in_turns_.empty()) {
    forget_unlabelled();
    in_turns_.at(lead_.optimizer(), record.run_step);
  }
  if (!is_beside && !has_label(record.optimizer)) return;
  std::optional<std::int32_t> gone;
  in_turns_.at(record.optimizer, record.run_step, &gone);
  if (gone) forget_optimizer(*gone);
}

void PrometheusExporter::forget_unlabelled() {
  for (const record::MetricInfo& info : record::metric_catalogue())
    if (record::is_of_optimizer(info)) metrics_->remove(info.metric);
  for (const std::string_view state : record::kNames<record::ParamState>)
    metrics_->remove(Metric::params, {state});
}

void PrometheusExporter::forget_optimizer(std::int32_t optimizer) {
  const std::string label = std::to_string(optimizer);
  for (const record::MetricInfo& info : record::metric_catalogue())
    if (record::is_of_optimizer(info)) metrics_->remove(info.metric, {label});
  for (const std::string_view state : record::kNames<record::ParamState>)
    metrics_->remove(Metric::params, {state, label});
  for (std::int32_t i = 0; i < record::kMaxLearningRates; ++i)
    metrics_->remove(Metric::learning_rate, {label, std::to_string(i)});
}

void PrometheusExporter::put_of_optimizer(Metric metric, std::optional<double> value,
                                          std::int32_t optimizer) {
  if (in_turns_.empty()) return set_if(*metrics_, metric, value);
  if (!has_label(optimizer)) return;
  set_if(*metrics_, metric, value, {std::to_string(optimizer)});
}

/// A step whose gradients were not read says nothing of them.
void PrometheusExporter::put_params(const record::StepRecord& record) {
  if (std::ranges::all_of(record.params, [](std::int32_t count) { return count == 0; })) return;
  const std::string optimizer = std::to_string(record.optimizer);
  if (!in_turns_.empty() && !has_label(record.optimizer)) return;
  for (std::size_t state = 0; state < record::kParamStates; ++state) {
    const std::string_view name = record::kNames<record::ParamState>[state];
    if (in_turns_.empty())
      metrics_->set(Metric::params, record.params[state], {name});
    else
      metrics_->set(Metric::params, record.params[state], {name, optimizer});
  }
}

void PrometheusExporter::export_numbers(const record::StepRecord& record,
                                        const record::ModelInfo& model) {
  MetricSet& metrics = *metrics_;
  note_optimizer(record);
  for (const record::StepNumber& number : record::kStepNumbers) {
    if (!number.metric) continue;
    if (record::is_of_optimizer(*number.metric))
      put_of_optimizer(*number.metric, value_of(number, record), record.optimizer);
    else
      set_if(metrics, *number.metric, value_of(number, record));
  }
  metrics.add(Metric::contiguous_copies_total, record.contiguous_copies);
  const auto count = [&](Metric metric, std::optional<std::int64_t> total) {
    if (total) metrics.raise_to(metric, static_cast<double>(*total));
  };
  count(Metric::device_allocation_retries_total, record.device_allocation_retries);
  count(Metric::device_out_of_memory_total, record.device_out_of_memory);
  put_params(record);

  const std::string optimizer = std::to_string(record.optimizer);
  const bool has_place = in_turns_.empty() || has_label(record.optimizer);
  const auto rates = has_place ? std::clamp(record.lr_count, 0, record::kMaxLearningRates) : 0;
  for (std::int32_t i = 0; i < rates; ++i) {
    metrics.set(Metric::learning_rate, record.lr[static_cast<std::size_t>(i)],
                {optimizer, std::to_string(i)});
  }
  const auto logged = std::min<std::size_t>(
      static_cast<std::size_t>(std::clamp(record.user_count, 0, record::kMaxUserMetrics)),
      model.user_metrics.size());
  for (std::size_t i = 0; i < logged; ++i) {
    if (!record::is_logged(record.user[i])) continue;
    metrics.set(Metric::user_metric, record.user[i], {model.user_metrics[i]});
  }
}

void PrometheusExporter::export_groups(const record::StepDetail& detail) {
  const std::size_t groups = std::min(detail.groups.size(), groups_.size());
  for (std::size_t i = 0; i < groups; ++i) {
    const record::GroupStats& stats = detail.groups[i];
    const std::string& group = groups_[i];
    for (const record::TensorNumber& number : record::kTensorNumbers)
      set_if(*metrics_, number.metric, stats.*number.group, {group});
  }
}

void PrometheusExporter::export_nonfinite(const record::StepRecord& record,
                                          const record::StepDetail& detail,
                                          const record::ModelInfo& model) {
  MetricSet& metrics = *metrics_;
  if (record.skipped == record::SkipReason::amp_overflow)
    metrics.add(Metric::amp_overflow_steps_total, 1);
  if (record.skipped != record::SkipReason::none) {
    metrics.add(Metric::skipped_steps_total, 1, {name_of(record.skipped)});
  }

  for (const Site site : {Site::loss, Site::grad, Site::weight}) {
    const std::size_t s = index_of(site);
    if (record.site_measured[s].value_or(false)) {
      metrics.add(Metric::site_reads_total, 1, {name_of(site)});
    }
    for (std::size_t kind = 0; kind < record::kNonfiniteKinds; ++kind) {
      metrics.raise_to(Metric::nonfinite_elements_total,
                       static_cast<double>(record.nonfinite_total[s][kind]),
                       {name_of(site), record::kNames<record::NonfiniteKind>[kind]});
    }
    count_lost_steps(record, site);

    // Overflow that a gradient scaler handled is its daily business, and pages nobody.
    if (record.is_handled_overflow() && site == Site::grad) continue;
    bool has_group = false;
    const auto count = [&](const NonfiniteCounts& counts, std::string_view group) {
      for (std::size_t kind = 0; kind < record::kNonfiniteKinds; ++kind) {
        if (counts[kind] <= 0) continue;
        has_group = true;
        metrics.add(Metric::nonfinite_steps_total, 1,
                    {name_of(site), record::kNames<record::NonfiniteKind>[kind], group});
      }
    };
    if (site == Site::loss) {
      count(record.nonfinite[s], record::kLossGroup);
      continue;
    }
    const std::size_t groups = std::min(detail.groups.size(), model.groups.size());
    for (std::size_t i = 0; i < groups; ++i) count(detail.groups[i].nonfinite[s], model.groups[i]);
    if (!has_group) count(record.nonfinite[s], record::kUnknownGroup);
  }
}

/// What the running totals know of bad steps whose own record never arrived: how many there were, and
/// which kinds of element grew meanwhile. Each such kind is counted, up to the number of steps.
void PrometheusExporter::count_lost_steps(const record::StepRecord& record, Site site) {
  const std::size_t s = index_of(site);
  const bool is_handled = record.is_handled_overflow() && site == Site::grad;
  const NonfiniteCounts own_elements = is_handled ? NonfiniteCounts{} : record.nonfinite[s];
  const std::int64_t own = record::any(own_elements) ? 1 : 0;
  const std::int64_t lost = record.nonfinite_steps_total[s] - steps_seen_[s] - own;
  for (std::size_t kind = 0; kind < record::kNonfiniteKinds; ++kind) {
    const std::int64_t elements =
        record.nonfinite_total[s][kind] - elements_seen_[s][kind] - own_elements[kind];
    add_if_positive(
        *metrics_, Metric::nonfinite_steps_total, static_cast<double>(std::min(lost, elements)),
        {name_of(site), record::kNames<record::NonfiniteKind>[kind], record::kUnknownGroup});
  }
  steps_seen_[s] = std::max(steps_seen_[s], record.nonfinite_steps_total[s]);
  elements_seen_[s] = record.nonfinite_total[s];
}

}  // namespace gradvane::exporters
