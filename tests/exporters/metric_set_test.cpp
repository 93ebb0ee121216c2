#include "exporters/metric_set.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "exporters/prometheus/exposition.hpp"
#include "record/names.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using record::Metric;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::string text_of(const MetricSet& metrics) {
  std::string text;
  write_exposition(text, metrics.collect(), ExpositionFormat::text_0_0_4);
  return text;
}

std::size_t samples_in(const std::string& text) {
  std::size_t samples = 0;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && c != '#') ++samples;
    at_start = c == '\n';
  }
  return samples;
}

bool has_family(const MetricSet& metrics, std::string_view name) {
  const auto families = metrics.collect();
  return std::ranges::any_of(
      families, [&](const auto& family) { return family.name == name && !family.metric.empty(); });
}

TEST(MetricSet, PublishesCountersOfKnownLabelsAtZeroBeforeAnythingHappens) {
  const MetricSet metrics(fakes::fake_run());
  for (const auto site : record::kNames<record::Site>) {
    for (const auto kind : record::kNames<record::NonfiniteKind>) {
      EXPECT_EQ(metrics.value(Metric::nonfinite_elements_total, {site, kind}), 0);
    }
  }
  for (const auto name : record::kNames<record::IncidentClass>) {
    EXPECT_EQ(metrics.value(Metric::incidents_total, {name}), 0);
  }
  for (const auto reason : record::kNames<record::SkipReason>) {
    if (reason == "none") continue;
    EXPECT_EQ(metrics.value(Metric::skipped_steps_total, {reason}), 0);
  }
  for (const auto state : record::kNames<record::RunState>) {
    EXPECT_EQ(metrics.value(Metric::run_state, {state}), 0);
  }
  EXPECT_EQ(metrics.value(Metric::amp_overflow_steps_total), 0);
  EXPECT_EQ(metrics.value(Metric::steps_total), 0);
}

TEST(MetricSet, AGaugeThatWasNeverSetIsAbsentAndOneThatIsRemovedLeaves) {
  MetricSet metrics(fakes::fake_run());
  EXPECT_FALSE(has_family(metrics, "gradvane_loss"));
  EXPECT_TRUE(std::isnan(metrics.value(Metric::loss)));
  EXPECT_TRUE(metrics.set(Metric::loss, 2.5));
  EXPECT_TRUE(has_family(metrics, "gradvane_loss"));
  metrics.remove(Metric::loss);
  metrics.remove(Metric::loss);
  EXPECT_FALSE(has_family(metrics, "gradvane_loss"));
}

TEST(MetricSet, EverySeriesCarriesRunAndRank) {
  MetricSet metrics(fakes::fake_run());
  metrics.set(Metric::group_grad_norm, 1, {"blocks.0"});
  for (const auto& family : metrics.collect()) {
    for (const auto& series : family.metric) {
      const auto has = [&](std::string_view name, std::string_view value) {
        return std::ranges::any_of(series.label, [&](const auto& label) {
          return label.name == name && label.value == value;
        });
      };
      EXPECT_TRUE(has("run", "fake-gpt")) << family.name;
      EXPECT_TRUE(has("rank", "0")) << family.name;
    }
  }
}

TEST(MetricSet, NonFiniteValuesAreRefusedCountedAndLeaveTheLastFiniteOneStanding) {
  MetricSet metrics(fakes::fake_run());
  metrics.set(Metric::loss, 2.5);
  metrics.observe(Metric::step_duration_seconds, 0.3);
  for (const double bad : {kNan, kInf, -kInf}) {
    EXPECT_FALSE(metrics.set(Metric::loss, bad));
    EXPECT_FALSE(metrics.observe(Metric::step_duration_seconds, bad));
    EXPECT_FALSE(metrics.add(Metric::tokens_total, bad));
    EXPECT_FALSE(metrics.raise_to(Metric::tokens_total, bad));
  }
  EXPECT_EQ(metrics.value(Metric::loss), 2.5);
  EXPECT_EQ(metrics.value(Metric::nonfinite_values_refused_total), 12);
  const std::string text = text_of(metrics);
  EXPECT_THAT(text,
              HasSubstr("gradvane_step_duration_seconds_count{rank=\"0\",run=\"fake-gpt\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("gradvane_step_duration_seconds_sum{rank=\"0\",run=\"fake-gpt\"} 0.3\n"));
  EXPECT_THAT(text, Not(HasSubstr(" NaN\n")));
  EXPECT_THAT(text, Not(HasSubstr("Inf\n")));
}

TEST(MetricSet, ACounterNeverFalls) {
  MetricSet metrics(fakes::fake_run());
  EXPECT_TRUE(metrics.raise_to(Metric::tokens_total, 10));
  EXPECT_TRUE(metrics.raise_to(Metric::tokens_total, 4));
  EXPECT_EQ(metrics.value(Metric::tokens_total), 10);
  EXPECT_FALSE(metrics.add(Metric::tokens_total, -1));
  EXPECT_EQ(metrics.value(Metric::tokens_total), 10);
}

TEST(MetricSet, RefusesTheWrongKindOfCallAndTheWrongNumberOfLabels) {
  MetricSet metrics(fakes::fake_run());
  EXPECT_FALSE(metrics.set(Metric::steps_total, 1));
  EXPECT_FALSE(metrics.add(Metric::loss, 1));
  EXPECT_FALSE(metrics.observe(Metric::loss, 1));
  EXPECT_FALSE(metrics.set(Metric::group_grad_norm, 1));
  EXPECT_FALSE(metrics.set(Metric::grad_norm, 1, {"one", "too many"}));
}

TEST(MetricSet, TheSeriesGaugeIsTheNumberOfSamplesPublished) {
  MetricSet metrics(fakes::fake_run());
  const auto expect_right = [&] {
    EXPECT_EQ(metrics.value(Metric::series), static_cast<double>(samples_in(text_of(metrics))));
  };
  expect_right();
  metrics.set(Metric::loss, 1);
  metrics.set(Metric::group_grad_norm, 1, {"a"});
  metrics.set(Metric::group_grad_norm, 1, {"b"});
  expect_right();
  metrics.remove(Metric::group_grad_norm, {"a"});
  expect_right();
}

TEST(MetricSet, NeverPublishesMoreThanMaxSeriesWhateverTheModel) {
  for (const std::size_t limit : {0U, 3U, 60U, 150U, 400U}) {
    MetricSet metrics(fakes::fake_run(), {.max_series = limit});
    for (int group = 0; group < 3000; ++group) {
      metrics.set(Metric::group_grad_norm, 1, {"group" + std::to_string(group)});
    }
    metrics.set(Metric::loss, 1);
    EXPECT_LE(samples_in(text_of(metrics)), limit);
  }
}

TEST(MetricSet, CountsEachSeriesThatDidNotFitOnce) {
  MetricSet metrics(fakes::fake_run(), {.max_series = 500});
  int kept = 0;
  for (int round = 0; round < 3; ++round) {
    kept = 0;
    for (int group = 0; group < 1000; ++group) {
      kept += metrics.set(Metric::group_grad_norm, 1, {"group" + std::to_string(group)}) ? 1 : 0;
    }
  }
  EXPECT_GT(kept, 100);
  EXPECT_EQ(metrics.value(Metric::series_dropped_total), 1000 - kept);
}

TEST(MetricSet, GroupsDoNotTakeThePlaceOfTheLossThatComesLater) {
  MetricSet metrics(fakes::fake_run(), {.max_series = 400});
  for (int group = 0; group < 1000; ++group) {
    metrics.set(Metric::group_grad_norm, 1, {"group" + std::to_string(group)});
  }
  for (const record::MetricInfo& info : record::metric_catalogue()) {
    if (info.type == record::MetricType::gauge && info.labels.empty()) {
      EXPECT_TRUE(metrics.set(info.metric, 1)) << info.name;
    }
  }
}

TEST(MetricSet, ARemovedSeriesMakesRoomForAnother) {
  MetricSet metrics(fakes::fake_run(), {.max_series = 400});
  int last = 0;
  while (metrics.set(Metric::group_grad_norm, 1, {"group" + std::to_string(last)})) ++last;
  metrics.remove(Metric::group_grad_norm, {"group0"});
  EXPECT_TRUE(metrics.set(Metric::group_grad_norm, 1, {"another"}));
}

// ---- collectables of the user ---------------------------------------------------------------------

class Fixed final : public prometheus::Collectable {
 public:
  explicit Fixed(std::vector<prometheus::MetricFamily> families) : families_(std::move(families)) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return families_; }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

class Throwing final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override { throw std::runtime_error("no"); }
};

prometheus::MetricFamily gauge_family(std::string name,
                                      std::vector<prometheus::ClientMetric::Label> labels = {}) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.type = prometheus::MetricType::Gauge;
  family.metric.resize(1);
  family.metric[0].label = std::move(labels);
  return family;
}

TEST(UserCollectables, ArePublishedWithRunAndRank) {
  MetricSet metrics(fakes::fake_run());
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("my_batches_total").Register(*registry).Add({{"split", "train"}});
  metrics.add_collectable(registry);
  EXPECT_THAT(text_of(metrics),
              HasSubstr("my_batches_total{split=\"train\",run=\"fake-gpt\",rank=\"0\"} 0\n"));
}

TEST(UserCollectables, KeepTheirOwnRunLabel) {
  MetricSet metrics(fakes::fake_run());
  const auto mine = std::make_shared<Fixed>(std::vector{gauge_family("mine", {{"run", "other"}})});
  metrics.add_collectable(mine);
  EXPECT_THAT(text_of(metrics), HasSubstr("mine{run=\"other\",rank=\"0\"} 0\n"));
}

TEST(UserCollectables, ThatAreGoneAreLeftOutWithoutACount) {
  MetricSet metrics(fakes::fake_run());
  metrics.add_collectable(std::make_shared<Fixed>(std::vector{gauge_family("mine")}));
  EXPECT_THAT(text_of(metrics), Not(HasSubstr("mine")));
  EXPECT_EQ(metrics.value(Metric::user_families_dropped_total), 0);
}

TEST(UserCollectables, ThatThrowAreCountedAndDoNotSpoilTheScrape) {
  MetricSet metrics(fakes::fake_run());
  const auto bad = std::make_shared<Throwing>();
  metrics.add_collectable(bad);
  EXPECT_THAT(text_of(metrics), HasSubstr("gradvane_steps_total"));
  EXPECT_EQ(metrics.value(Metric::user_families_dropped_total), 1);
}

TEST(UserCollectables, WithNamesThatPrometheusWouldRefuseAreLeftOut) {
  auto twice = gauge_family("twice");
  twice.metric.resize(2);
  auto le = gauge_family("le_taken", {{"le", "1"}});
  le.type = prometheus::MetricType::Histogram;
  const std::vector bad{
      gauge_family("gradvane_loss_scale_x y"),
      gauge_family("9lives"),
      gauge_family(""),
      gauge_family("ok", {{"bad-label", "x"}}),
      gauge_family("ok", {{"__reserved", "x"}}),
      gauge_family("ok", {{"a", "1"}, {"a", "2"}}),
      gauge_family("gradvane_steps_total"),
      gauge_family("gradvane_steps"),
      gauge_family("gradvane_step_duration_seconds_sum"),
      twice,
      le,
  };
  for (const auto& family : bad) {
    MetricSet metrics(fakes::fake_run());
    const auto user = std::make_shared<Fixed>(std::vector{family});
    metrics.add_collectable(user);
    const auto before = MetricSet(fakes::fake_run()).collect().size();
    EXPECT_EQ(metrics.collect().size(), before) << family.name;
    EXPECT_EQ(metrics.value(Metric::user_families_dropped_total), 1) << family.name;
  }
}

TEST(UserCollectables, WithTheSameNameAreTakenOnce) {
  MetricSet metrics(fakes::fake_run());
  const auto first = std::make_shared<Fixed>(std::vector{gauge_family("mine", {{"a", "1"}})});
  const auto second = std::make_shared<Fixed>(std::vector{gauge_family("mine", {{"a", "2"}})});
  metrics.add_collectable(first);
  metrics.add_collectable(second);
  const std::string text = text_of(metrics);
  EXPECT_THAT(text, HasSubstr("mine{a=\"1\""));
  EXPECT_THAT(text, Not(HasSubstr("mine{a=\"2\"")));
}

}  // namespace
}  // namespace gradvane::exporters
