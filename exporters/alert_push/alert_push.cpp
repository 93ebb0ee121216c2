#include "exporters/alert_push/alert_push.hpp"

#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "exporters/alert_push/alert_sender.hpp"
#include "record/clocks.hpp"

namespace gradvane::exporters {

AlertPush::AlertPush(AlertPushOptions options, std::shared_ptr<MetricSet> metrics)
    : options_(std::move(options)), metrics_(std::move(metrics)), owner_(::getpid()) {
  (void)parse_alert_url(options_.url);
  check_alert_labels(options_.labels);
  if (!options_.generator_url.empty() && !is_web_link(options_.generator_url))
    throw std::invalid_argument("generator URL of pushed alerts '" + options_.generator_url +
                                "': it begins with http:// or https://");
  while (options_.runbook_base.ends_with('/')) options_.runbook_base.pop_back();
}

AlertPush::~AlertPush() {
  if (sender_ && is_child()) sender_->leave_to_parent();
}

/// In a forked child the sender's thread does not exist.
bool AlertPush::is_child() const noexcept { return ::getpid() != owner_; }

ExportResult AlertPush::result() const noexcept {
  return sender_ ? ExportResult::ok : ExportResult::closed;
}

ExportResult AlertPush::start(const record::RunInfo& run,
                              std::shared_ptr<const record::ModelInfo> model) noexcept try {
  (void)model;
  if (is_child()) return ExportResult::closed;
  sender_ = std::make_unique<AlertSender>(AlertSenderOptions{
      .url = parse_alert_url(options_.url),
      .words = {.run = run.run,
                .rank = run.rank,
                .labels = options_.labels,
                .runbook_base = options_.runbook_base,
                .generator_url = options_.generator_url},
      .windows = options_.windows,
      .resolve = options_.resolve,
      .counted =
          [metrics = metrics_](bool taken, std::size_t alerts) {
            if (metrics)
              metrics->add(record::Metric::alert_pushes_total, static_cast<double>(alerts),
                           {taken ? "ok" : "failed"});
          },
      .deadline = options_.deadline});
  return ExportResult::ok;
} catch (...) {
  return ExportResult::failed;
}

ExportResult AlertPush::set_model(std::shared_ptr<const record::ModelInfo> model) noexcept {
  (void)model;
  return result();
}

ExportResult AlertPush::export_step(const record::StepRecord& record,
                                    const record::StepDetail& detail,
                                    const record::ModelInfo& model) noexcept {
  (void)record, (void)detail, (void)model;
  return result();
}

ExportResult AlertPush::export_syncs(std::shared_ptr<const record::SyncSummary> syncs) noexcept {
  (void)syncs;
  return result();
}

ExportResult AlertPush::export_incident(const record::Incident& incident) noexcept try {
  if (!sender_ || is_child()) return ExportResult::closed;
  sender_->put(incident);
  return ExportResult::ok;
} catch (...) {
  return ExportResult::failed;
}

ExportResult AlertPush::set_run_state(record::RunState state, std::string_view reason) noexcept
    try {
  if (!sender_ || is_child()) return ExportResult::closed;
  if (state != record::RunState::failed) return ExportResult::ok;
  sender_->put_run_failed(record::unix_time(), std::string(reason));
  return ExportResult::ok;
} catch (...) {
  return ExportResult::failed;
}

ExportResult AlertPush::finish(std::chrono::milliseconds budget) noexcept try {
  if (!sender_ || is_child()) return ExportResult::closed;
  sender_->finish(budget);
  last_error_ = sender_->last_error();
  sender_.reset();
  return ExportResult::ok;
} catch (...) {
  return ExportResult::failed;
}

void AlertPush::set_generator_url(std::string url) noexcept try {
  if (is_child() || !is_web_link(url)) return;
  options_.generator_url = url;
  if (sender_) sender_->set_generator_url(std::move(url));
} catch (...) {  // no memory: alerts do without
}

std::string AlertPush::last_error() const {
  if (is_child()) return {};
  return sender_ ? sender_->last_error() : last_error_;
}

}  // namespace gradvane::exporters
