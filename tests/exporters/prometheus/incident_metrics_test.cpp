#include "exporters/prometheus/incident_metrics.hpp"

#include <gtest/gtest.h>
#include <prometheus/metric_family.h>

#include <cmath>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "exporters/prometheus/exposition.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "record/run/end_reason.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using record::Metric;

class IncidentMetricsTest : public testing::Test {
 protected:
  IncidentMetricsTest() {
    EXPECT_EQ(exporter_.start(fakes::fake_run(), fakes::fake_model()), ExportResult::ok);
  }
  double value(Metric metric, MetricSet::LabelValues labels = {}) const {
    return metrics_->value(metric, labels);
  }
  bool is_absent(Metric metric, MetricSet::LabelValues labels = {}) const {
    return std::isnan(value(metric, labels));
  }

  std::shared_ptr<MetricSet> metrics_ = std::make_shared<MetricSet>(fakes::fake_run());
  PrometheusExporter exporter_{metrics_};
};

TEST_F(IncidentMetricsTest, AnIncidentCountsOnceHoweverOftenItIsHandedOver) {
  auto incident = fakes::fake_incident(1, 5);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(exporter_.export_incident(incident), ExportResult::ok);
  EXPECT_EQ(value(Metric::incidents_total, {"nonfinite_grad"}), 1);
  EXPECT_EQ(value(Metric::incidents_open, {"nonfinite_grad"}), 1);
  incident.closed_at = 1;
  EXPECT_EQ(exporter_.export_incident(incident), ExportResult::ok);
  EXPECT_EQ(value(Metric::incidents_open, {"nonfinite_grad"}), 0);
  EXPECT_EQ(exporter_.export_incident(fakes::fake_incident(2, 9)), ExportResult::ok);
  EXPECT_EQ(value(Metric::incidents_total, {"nonfinite_grad"}), 2);
}

TEST_F(IncidentMetricsTest, AnIncidentIsTheExemplarOfItsCounter) {
  const auto exposition = [&](ExpositionFormat format) {
    std::string text;
    write_exposition(text, metrics_->collect(), format, metrics_->exemplars());
    return text;
  };
  const auto counter = [&](ExpositionFormat format) {
    std::istringstream lines(exposition(format));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("gradvane_incidents_total{") &&
          line.find("class=\"nonfinite_grad\"") != std::string::npos)
        return line.substr(line.find("} ") + 2);
    return std::string();
  };
  EXPECT_EQ(counter(ExpositionFormat::openmetrics_1_0_0), "0");
  auto incident = fakes::fake_incident(1, 5);
  incident.opened_at = 1234.5;
  incident.param = "a\"b";
  incident.group.clear();
  EXPECT_EQ(exporter_.export_incident(incident), ExportResult::ok);
  EXPECT_EQ(counter(ExpositionFormat::openmetrics_1_0_0),
            "1 # {step=\"5\",param=\"a\\\"b\"} 1 1234.5");
  EXPECT_EQ(counter(ExpositionFormat::text_0_0_4), "1");  // which has no exemplars
  incident = fakes::fake_incident(2, 1234567);
  incident.opened_at = 1235;
  incident.param = std::string(200, 'x');  // longer than OpenMetrics allows
  incident.group = "head";
  EXPECT_EQ(exporter_.export_incident(incident), ExportResult::ok);
  EXPECT_EQ(counter(ExpositionFormat::openmetrics_1_0_0),
            "2 # {step=\"1234567\",group=\"head\"} 1 1235");
}

TEST_F(IncidentMetricsTest, AnEndHasOneReasonAndARunThatGoesOnHasNone) {
  const auto reasons = [&] {
    std::vector<std::string> there;
    for (const auto name : record::kNames<record::EndReason>)
      if (!is_absent(Metric::run_end_info, {name})) there.emplace_back(name);
    return there;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(exporter_.set_run_state(record::RunState::running, ""), ExportResult::ok);
  EXPECT_EQ(reasons(), Names{});
  for (const auto& [state, text, reason] :
       {std::tuple(record::RunState::finished, "", "finished"),
        std::tuple(record::RunState::failed, "SIGTERM", "terminated"),
        std::tuple(record::RunState::failed, "KeyboardInterrupt", "interrupted"),
        std::tuple(record::RunState::failed, "ValueError: no", "error")}) {
    EXPECT_EQ(exporter_.set_run_state(state, text), ExportResult::ok);
    EXPECT_EQ(reasons(), Names{reason});
  }
}

}  // namespace
}  // namespace gradvane::exporters
