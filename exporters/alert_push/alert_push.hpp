#pragma once
// Incidents to Alertmanager directly, for a run that is gone before the next scrape.
//
// The alerts are those of the rules in dashboards/alerts, of the classes that these watch, and
// GradvaneTrainingRunFailed and -Terminated. An alert is of a run, whichever rank sends it. With the label `job` that
// Prometheus puts on its targets they are the same alerts to Alertmanager. docs/alert-push.md says what it can and cannot do.
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "exporters/alert_push/alert_book.hpp"
#include "exporters/alert_push/alert_labels.hpp"
#include "exporters/alert_push/push_access.hpp"
#include "exporters/client/resolve_host.hpp"
#include "exporters/exporter.hpp"
#include "exporters/metric_set.hpp"

namespace gradvane::exporters {

class AlertSender;

struct AlertPushOptions {
  std::string url;  ///< "http://host:9093" or https, with Alertmanager's path prefix if it has one
  std::shared_ptr<PushAccess> access =
      nullptr;                     ///< null: a plain request, which https does not allow
  AlertLabels labels = {};         ///< of each alert besides alertname, severity, component and run
  std::string runbook_base = {};   ///< where the runbooks are; empty: the agent's own endpoint
  std::string generator_url = {};  ///< where a person looks for more; empty: nowhere
  AlertWindows windows = {};       ///< as of the rules that Prometheus has
  ResolveHost resolve = resolve_host;
  std::chrono::milliseconds deadline = std::chrono::seconds(2);  ///< of each try
};

/// Nobody waits for Alertmanager: what is to be told goes out on a thread of its own, which starts
/// with the first incident. Sent or not, the calls return ok; gradvane_alert_pushes_total counts,
/// last_error() tells.
///
/// finish() sends what is still open once more, to end 15 minutes from then: the process is about to be
/// gone.
///
/// Threading: as every exporter, for all of it. In a forked child nothing happens.
class AlertPush final : public Exporter {
 public:
  /// Throws std::invalid_argument for options that cannot work. `metrics` may be null.
  AlertPush(AlertPushOptions options, std::shared_ptr<MetricSet> metrics);
  ~AlertPush() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "alert_push"; }

  /// Once the agent's own page has an address; anything but a web link is ignored.
  void set_generator_url(std::string url) noexcept;
  /// Why the latest try to reach Alertmanager failed, in one line; empty where it did not.
  [[nodiscard]] std::string last_error() const;

 private:
  ExportResult on_start(const record::RunInfo& run,
                        const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                       const record::ModelInfo& model) override;
  ExportResult on_incident(const record::Incident& incident) override;
  ExportResult on_run_state(record::RunState state, std::string_view reason) override;
  ExportResult on_finish(std::chrono::milliseconds budget) override;

  [[nodiscard]] bool is_child() const noexcept;

  AlertPushOptions options_;
  std::shared_ptr<MetricSet> metrics_;
  std::unique_ptr<AlertSender> sender_;  ///< from start() to finish()
  pid_t owner_;
  std::string last_error_;  ///< of a sender that is gone
};

}  // namespace gradvane::exporters
