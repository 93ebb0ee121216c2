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
  if (parse_alert_url(options_.url).has_tls && !options_.access)
    throw std::invalid_argument("Alertmanager's URL '" + options_.url +
                                "': AlertPushOptions::access is not set, which https needs");
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

ExportResult AlertPush::on_start(const record::RunInfo& run,
                                 const std::shared_ptr<const record::ModelInfo>& /*model*/) {
  if (is_child()) return ExportResult::closed;
  AlertWindows windows = options_.windows;
  if (run.world_size > 1) windows.others = AlertBook::kAgain + std::chrono::seconds(30);
  sender_ = std::make_unique<AlertSender>(AlertSenderOptions{
      .url = parse_alert_url(options_.url),
      .words = {.run = run.run,
                .rank = run.rank,
                .labels = options_.labels,
                .runbook_base = options_.runbook_base,
                .generator_url = options_.generator_url},
      .windows = windows,
      .resolve = options_.resolve,
      .access = options_.access,
      .counted =
          [metrics = metrics_](bool taken, std::size_t alerts) {
            if (metrics)
              metrics->add(record::Metric::alert_pushes_total, static_cast<double>(alerts),
                           {taken ? "ok" : "failed"});
          },
      .deadline = options_.deadline});
  return ExportResult::ok;
}

/// A step alone is nothing to push: its incidents are.
ExportResult AlertPush::on_step(const record::StepRecord& /*record*/,
                                const record::StepDetail& /*detail*/,
                                const record::ModelInfo& /*model*/) {
  return ExportResult::ok;
}

ExportResult AlertPush::on_incident(const record::Incident& incident) {
  if (!sender_) return ExportResult::failed;  // start() ran out of memory
  sender_->put(incident);
  return ExportResult::ok;
}

ExportResult AlertPush::on_run_state(record::RunState state, std::string_view reason) {
  if (state != record::RunState::failed) return ExportResult::ok;
  const record::AlertRule* rule = alert_rule(end_reason(state, reason));
  if (rule == nullptr) return ExportResult::ok;
  if (!sender_) return ExportResult::failed;
  sender_->put_end_of_run(*rule, record::unix_time(), std::string(reason));
  return ExportResult::ok;
}

/// Reports what is still open once more, to end 15 minutes from now: the process is about to be gone.
ExportResult AlertPush::on_finish(std::chrono::milliseconds budget) {
  if (!sender_) return ExportResult::failed;
  sender_->finish(budget);
  last_error_ = sender_->last_error();
  sender_.reset();
  return ExportResult::ok;
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
