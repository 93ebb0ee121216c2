#include "agent/outlets/outlets.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "exporters/alert_push/alert_labels.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "exporters/step_log/step_log.hpp"
#include "exporters/web/configured_push.hpp"
#include "record/numbers.hpp"

namespace gradvane::agent {
namespace {

constexpr std::int64_t kDiskBytes = std::int64_t{32} << 20;
constexpr std::int64_t kDiskBytesInMemory = std::int64_t{8} << 20;

void require_writable(const exporters::StepLog& step_log) {
  if (step_log.error() == 0) return;
  throw std::runtime_error("step_log: " + step_log.path().string() +
                           " cannot be written: " + std::strerror(step_log.error()) +
                           "; name another file, or leave the option out");
}

/// The most groups with which this rank publishes their gauges.
std::size_t most_groups(GroupSeries which, const record::RunInfo& run) {
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  constexpr std::size_t kMostSeries = 50'000;  // of all ranks: Prometheus holds some 4 kB for each
  constexpr std::size_t kOfGroup = record::kTensorNumbers.size();
  switch (which) {
    case GroupSeries::automatic:
      if (run.rank == 0) return kAny;
      return kMostSeries / (kOfGroup * static_cast<std::size_t>(std::max(run.world_size, 1)));
    case GroupSeries::all:
      return kAny;
    case GroupSeries::local0:
      return run.local_rank == 0 ? kAny : 0;
    case GroupSeries::rank0:
      return run.rank == 0 ? kAny : 0;
  }
  return kAny;
}

}  // namespace

Outlets::Outlets(const Options& options, const record::RunInfo& run, UserCallbacks& callbacks)
    : callbacks_(callbacks),
      metrics_(std::make_shared<exporters::MetricSet>(
          run, exporters::MetricSetOptions{static_cast<std::size_t>(options.max_series)})),
      board_(std::make_shared<exporters::StatusBoard>(
          static_cast<std::size_t>(options.history_steps))),
      history_(std::make_shared<exporters::RunHistory>()),
      exporters_(metrics_),
      directories_(options, run, callbacks) {
  exporters_.add(std::make_shared<exporters::PrometheusExporter>(
      metrics_, most_groups(options.group_series, run)));
  exporters_.add(board_);
  if (options.port >= 0) exporters_.add(history_);
  try {
    start_exporters(options, run);
    if (options.port < 0) return;
    endpoint_.start(options, run, {metrics_, board_, history_}, directories_, callbacks_);
    if (alerts_ != nullptr) alerts_->set_generator_url(endpoint_.url());
  } catch (...) {
    withdraw();
    throw;
  }
}

void Outlets::start_exporters(const Options& options, const record::RunInfo& run) {
  std::shared_ptr<exporters::StepLog> step_log;
  if (!options.step_log.empty()) {
    step_log = std::make_shared<exporters::StepLog>(
        exporters::StepLogOptions{options.step_log, options.step_log_max_bytes});
    exporters_.add(step_log);
  }
  if (options.recorder) add_recorder(options);
  if (!options.alertmanager_url.empty()) add_alerts(options);
  const auto started = exporters_.start(run, std::make_shared<record::ModelInfo>());
  if (step_log != nullptr) require_writable(*step_log);
  if (started == exporters::ExportResult::failed)
    callbacks_.log("an exporter could not start; gradvane_export_failures_total says which");
  if (step_log != nullptr && !step_log->note().empty()) callbacks_.log(step_log->note());
}

void Outlets::add_recorder(const Options& options) {
  exporters::recording::RecorderOptions recorder;
  recorder.directory = directories_.recordings();
  recorder.steps = options.recorder_steps;
  recorder.memory_bytes = static_cast<std::size_t>(options.recorder_memory_bytes);
  const bool is_automatic = options.recorder_disk_bytes < 0;
  recorder.disk_bytes =
      static_cast<std::size_t>(is_automatic ? kDiskBytes : options.recorder_disk_bytes);
  if (is_automatic) recorder.disk_bytes_in_memory = static_cast<std::size_t>(kDiskBytesInMemory);
  recorder.kept = options.recorder_kept;
  recorder_ = std::make_shared<exporters::recording::FlightRecorder>(std::move(recorder), metrics_);
  exporters_.add(recorder_);
}

void Outlets::add_alerts(const Options& options) {
  exporters::AlertPushOptions alerts;
  alerts.url = options.alertmanager_url;
  alerts.labels = exporters::parse_alert_labels(options.alertmanager_labels);
  const exporters::AlertUrl url = exporters::parse_alert_url(alerts.url);
  if (url.has_tls || !options.alertmanager_http_config.empty())
    alerts.access =
        std::make_shared<exporters::ConfiguredPush>(url, options.alertmanager_http_config);
  alerts_ = std::make_shared<exporters::AlertPush>(std::move(alerts), metrics_);
  exporters_.add(alerts_);
}

/// The ring on disk is for runs that are killed, and not for a set-up that fails. After finish()
/// the exporters are closed, and nothing happens here.
void Outlets::withdraw() noexcept {
  (void)exporters_.set_run_state(record::RunState::finished, "");
  (void)exporters_.finish(std::chrono::milliseconds(0));
}

void Outlets::set_run_state(record::RunState state, std::string_view reason) noexcept {
  (void)exporters_.set_run_state(state, reason);
  endpoint_.write_state(state);
}

void Outlets::look() {
  log_alert_error();
  endpoint_.take_over_port(callbacks_);
  if (endpoint_.leave_if_closed())
    callbacks_.log(
        "the program has closed the endpoint's descriptors; the run goes on without an endpoint");
}

/// Once, until it is another one or there was none in between.
void Outlets::log_alert_error() {
  if (alerts_ == nullptr) return;
  std::string error = alerts_->last_error();
  if (!error.empty() && error != alert_error_) callbacks_.log("alertmanager_url: " + error);
  alert_error_ = std::move(error);
}

}  // namespace gradvane::agent
