// Metrics of devices: which they are, and what torch's allocator counts there.
#include <gtest/gtest.h>

#include <cmath>

#include "exporters/prometheus/prometheus_exporter.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using record::DeviceInfo;
using record::Metric;

class DeviceMetrics : public testing::Test {
 protected:
  DeviceMetrics() {
    EXPECT_EQ(exporter_.start(fakes::fake_run(), fakes::fake_model()), ExportResult::ok);
  }
  double value(Metric metric, MetricSet::LabelValues labels = {}) const {
    return metrics_->value(metric, labels);
  }
  void model_on(std::vector<DeviceInfo> devices) {
    auto model = std::make_shared<record::ModelInfo>(*fakes::fake_model());
    model->id = ++last_id_;
    model->devices = std::move(devices);
    EXPECT_EQ(exporter_.set_model(model), ExportResult::ok);
    model_ = model;
  }
  void step(std::int64_t peak, std::int64_t retries, std::int64_t failures) {
    training_.next();
    auto [record, detail] = training_.current();
    record.device_peak_bytes = peak;
    record.device_allocation_retries = retries;
    record.device_out_of_memory = failures;
    EXPECT_EQ(exporter_.export_step(record, detail, *model_), ExportResult::ok);
  }

  std::uint64_t last_id_ = 100;
  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  std::shared_ptr<MetricSet> metrics_ = std::make_shared<MetricSet>(fakes::fake_run());
  PrometheusExporter exporter_{metrics_};
  FakeTraining training_{model_};
};

const DeviceInfo kFirst{.device = "cuda:0", .uuid = "GPU-0f", .name = "Fake GPU"};
const DeviceInfo kSecond{.device = "cuda:1", .uuid = "GPU-01", .name = "Fake GPU"};

TEST_F(DeviceMetrics, EachDeviceHasItsUuidAndOneThatIsLeftIsGone) {
  EXPECT_TRUE(std::isnan(value(Metric::device_info, {"cuda:0", "GPU-0f", "Fake GPU"})));
  model_on({kFirst, kSecond});
  EXPECT_EQ(value(Metric::device_info, {"cuda:0", "GPU-0f", "Fake GPU"}), 1);
  EXPECT_EQ(value(Metric::device_info, {"cuda:1", "GPU-01", "Fake GPU"}), 1);
  model_on({kSecond});
  EXPECT_TRUE(std::isnan(value(Metric::device_info, {"cuda:0", "GPU-0f", "Fake GPU"})));
  EXPECT_EQ(value(Metric::device_info, {"cuda:1", "GPU-01", "Fake GPU"}), 1);
}

TEST_F(DeviceMetrics, CountersStandAtTheTotalsAndThePeakMayFall) {
  EXPECT_TRUE(std::isnan(value(Metric::device_out_of_memory_total))) << "absent is not zero";
  step(4096, 0, 0);
  EXPECT_EQ(value(Metric::device_memory_peak_bytes), 4096);
  EXPECT_EQ(value(Metric::device_allocation_retries_total), 0);
  EXPECT_EQ(value(Metric::device_out_of_memory_total), 0);
  step(2048, 5, 2);
  EXPECT_EQ(value(Metric::device_memory_peak_bytes), 2048);
  EXPECT_EQ(value(Metric::device_allocation_retries_total), 5);
  EXPECT_EQ(value(Metric::device_out_of_memory_total), 2);
  step(2048, 5, 2);
  EXPECT_EQ(value(Metric::device_allocation_retries_total), 5);
}

}  // namespace
}  // namespace gradvane::exporters
