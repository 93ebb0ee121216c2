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
  PrometheusExporter other(without, /*most_groups=*/0);
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

TEST(GroupGauges, AreThereUpToTheLimitAndLeaveWithAModelThatHasMore) {
  const auto model = fakes::fake_model();
  const std::size_t groups = model->groups.size();
  fakes::FakeTraining training(model);
  const auto metrics = std::make_shared<MetricSet>(fakes::fake_run());
  PrometheusExporter exporter(metrics, groups);
  ASSERT_EQ(exporter.start(fakes::fake_run(), model), ExportResult::ok);
  const auto step = [&](const record::ModelInfo& of) {
    const auto& [record, detail] = training.next();
    ASSERT_EQ(exporter.export_step(record, detail, of), ExportResult::ok);
  };
  const auto norm = [&] { return metrics->value(Metric::group_grad_norm, {"blocks.0.mlp"}); };
  step(*model);
  EXPECT_FALSE(std::isnan(norm()));

  auto larger = std::make_shared<record::ModelInfo>(*model);
  larger->id = 99;
  larger->groups.emplace_back("one more");
  ASSERT_EQ(exporter.set_model(larger), ExportResult::ok);
  EXPECT_TRUE(std::isnan(norm()));
  step(*larger);
  EXPECT_TRUE(std::isnan(norm()));

  ASSERT_EQ(exporter.set_model(model), ExportResult::ok);
  step(*model);
  EXPECT_FALSE(std::isnan(norm()));
}

}  // namespace
}  // namespace gradvane::exporters
