#include "record/metric_catalogue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

namespace gradvane::record {
namespace {

bool is_lower_snake_case(std::string_view text) {
  return !text.empty() && std::islower(static_cast<unsigned char>(text.front())) != 0 &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_';
         });
}

TEST(MetricCatalogue, ListsEveryMetricOnceInTheOrderOfTheEnum) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kMetrics; ++i) {
    const MetricInfo& info = metric_catalogue()[i];
    EXPECT_EQ(static_cast<std::size_t>(info.metric), i) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name << " is there twice";
    EXPECT_EQ(&info_of(info.metric), &info);
  }
}

TEST(MetricCatalogue, NamesFollowThePrometheusConventions) {
  for (const MetricInfo& info : metric_catalogue()) {
    EXPECT_TRUE(info.name.starts_with("gradvane_")) << info.name;
    EXPECT_TRUE(is_lower_snake_case(info.name)) << info.name;
    EXPECT_EQ(info.name.ends_with("_total"), info.type == MetricType::counter) << info.name;
    EXPECT_EQ(info.name.ends_with("_info"), info.type == MetricType::info) << info.name;
    for (const auto reserved : {"_count", "_sum", "_bucket", "_created"}) {
      EXPECT_FALSE(info.name.ends_with(reserved)) << info.name;
    }
  }
}

TEST(MetricCatalogue, AUnitIsABaseUnitAndIsInTheName) {
  for (const MetricInfo& info : metric_catalogue()) {
    if (info.unit.empty()) {
      EXPECT_THAT(std::string(info.name), testing::Not(testing::HasSubstr("_seconds")))
          << info.name;
      EXPECT_THAT(std::string(info.name), testing::Not(testing::HasSubstr("_bytes"))) << info.name;
      continue;
    }
    EXPECT_THAT(info.unit, testing::AnyOf("seconds", "bytes", "ratio")) << info.name;
    EXPECT_THAT(std::string(info.name), testing::HasSubstr("_" + std::string(info.unit)));
  }
}

TEST(MetricCatalogue, EveryMetricSaysWhatItMeansAndWhenItIsThere) {
  for (const MetricInfo& info : metric_catalogue()) {
    EXPECT_GT(info.help.size(), 10U) << info.name;
    EXPECT_FALSE(info.help.ends_with('.')) << info.name;
    EXPECT_TRUE(info.present.ends_with('.')) << info.name;
    for (const std::string_view text : {info.help, info.present}) {
      EXPECT_EQ(text.find_first_of("\n|\\\""), std::string_view::npos) << info.name;
    }
  }
}

TEST(MetricCatalogue, LabelsAreFewAndNoneIsOneThatEverySeriesHasAnyway) {
  for (const MetricInfo& info : metric_catalogue()) {
    // An info is one series, whatever it says.
    if (info.type != MetricType::info) {
      EXPECT_LE(info.labels.size(), 3U) << info.name;
    }
    for (const LabelInfo& label : info.labels) {
      EXPECT_TRUE(is_lower_snake_case(label.name)) << info.name;
      for (const auto taken : {"run", "rank", "le", "quantile", "job", "instance"}) {
        EXPECT_NE(label.name, taken) << info.name;
      }
    }
  }
}

TEST(MetricCatalogue, OnlyMetricsWithKnownLabelValuesExistFromTheStart) {
  for (const MetricInfo& info : metric_catalogue()) {
    if (info.from_start) {
      EXPECT_TRUE(is_closed(info)) << info.name;
    }
  }
}

TEST(MetricCatalogue, BucketsOfTheStepDurationRise) {
  EXPECT_TRUE(std::ranges::is_sorted(step_duration_buckets(), std::less_equal<>{}));
  EXPECT_GT(step_duration_buckets().front(), 0);
}

/// What histogram_quantile() makes of steps that all take `seconds`.
double quantile_of_constant(double share, double seconds) {
  const auto bounds = step_duration_buckets();
  const auto above = std::ranges::lower_bound(bounds, seconds);
  return *(above - 1) + share * (*above - *(above - 1));
}

TEST(MetricCatalogue, QuantilesOfEqualStepsAreAllNearTheirTime) {
  for (const double share : {0.5, 0.9, 0.99})
    EXPECT_NEAR(quantile_of_constant(share, 3.1), 3.1, 0.15 * 3.1);
  // At worst, for a time just above a bound.
  for (double seconds = 0.00101; seconds < 100; seconds *= 1.003)
    for (const double share : {0.5, 0.9, 0.99})
      EXPECT_NEAR(quantile_of_constant(share, seconds), seconds, 0.29 * seconds) << seconds;
}

}  // namespace
}  // namespace gradvane::record
