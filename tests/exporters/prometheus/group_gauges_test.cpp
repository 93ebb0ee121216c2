#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

#include "exporters/metric_set.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using record::Metric;

TEST(GroupGauges, ARankWithoutThemHasAllElse) {
  const auto model = fakes::fake_model();
  fakes::FakeTraining training(model);
  const auto with = std::make_shared<MetricSet>(fakes::fake_run());
  const auto without = std::make_shared<MetricSet>(fakes::fake_run());
  PrometheusExporter one(with);
  PrometheusExporter other(without, /*has_groups=*/false);
  ASSERT_EQ(one.start(fakes::fake_run(), model), ExportResult::ok);
  ASSERT_EQ(other.start(fakes::fake_run(), model), ExportResult::ok);
  for (int i = 0; i < 12; ++i) {
    const auto& [record, detail] = training.next();
    ASSERT_EQ(one.export_step(record, detail, *model), ExportResult::ok);
    ASSERT_EQ(other.export_step(record, detail, *model), ExportResult::ok);
  }
  for (const auto& [metric, group] : {std::pair{Metric::group_grad_norm, "blocks.0.mlp"},
                                      std::pair{Metric::group_weight_norm, "embedding"}}) {
    EXPECT_FALSE(std::isnan(with->value(metric, {group}))) << group;
    EXPECT_TRUE(std::isnan(without->value(metric, {group}))) << group;
  }
  for (const Metric metric : {Metric::weight_norm, Metric::steps_total, Metric::grad_norm})
    EXPECT_EQ(with->value(metric), without->value(metric));
}

}  // namespace
}  // namespace gradvane::exporters
