#include "exporters/prometheus/sync_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/metric_family.h>

#include <array>
#include <cmath>
#include <map>
#include <random>

#include "exporters/prometheus/prometheus_exporter.hpp"
#include "record/names.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using record::Metric;
using record::SyncKind;
using record::SyncOrigin;
using record::SyncReason;
using record::SyncSource;
using record::SyncSummary;
using testing::ElementsAre;
using testing::IsEmpty;

/// Every series of a metric: its labels but `run` and `rank`, joined, and its value.
std::map<std::string, double> series_of(const MetricSet& metrics, Metric metric) {
  std::map<std::string, double> all;
  for (const auto& family : metrics.collect()) {
    if (family.name != record::info_of(metric).name) continue;
    for (const auto& series : family.metric) {
      std::string labels;
      for (const auto& [name, value] : series.label) {
        if (name != "run" && name != "rank") labels += (labels.empty() ? "" : " ") + value;
      }
      all[labels] = family.type == prometheus::MetricType::Counter ? series.counter.value
                                                                   : series.gauge.value;
    }
  }
  return all;
}

constexpr std::array kOnlyWhereCounted{Metric::host_syncs_total,
                                       Metric::host_sync_seconds_total,
                                       Metric::host_syncs_by_phase_total,
                                       Metric::host_sync_phase_seconds_total,
                                       Metric::host_sync_location_total,
                                       Metric::host_sync_location_seconds_total,
                                       Metric::device_polls_total,
                                       Metric::device_poll_seconds_total,
                                       Metric::sync_budget,
                                       Metric::sync_budget_breaches_total};

class SyncMetricsTest : public testing::Test {
 protected:
  SyncMetricsTest() {
    EXPECT_EQ(exporter_.start(fakes::fake_run(), fakes::fake_model()), ExportResult::ok);
  }

  void put(SyncSummary syncs) {
    EXPECT_EQ(exporter_.export_syncs(std::make_shared<const SyncSummary>(std::move(syncs))),
              ExportResult::ok);
  }
  std::map<std::string, double> series(Metric metric) const { return series_of(*metrics_, metric); }
  double value(Metric metric, MetricSet::LabelValues labels = {}) const {
    return metrics_->value(metric, labels);
  }
  void expect_nothing_counted() const {
    for (const Metric metric : kOnlyWhereCounted) {
      EXPECT_THAT(series(metric), IsEmpty()) << record::info_of(metric).name;
    }
  }

  std::shared_ptr<MetricSet> metrics_ = std::make_shared<MetricSet>(fakes::fake_run());
  PrometheusExporter exporter_{metrics_};
};

TEST_F(SyncMetricsTest, BeforeAnybodySaidAnythingThereIsOnlyTheReason) {
  expect_nothing_counted();
  EXPECT_THAT(series(Metric::step_host_syncs), IsEmpty());
  EXPECT_THAT(series(Metric::sync_source_info), ElementsAre(std::pair("switched_off off", 1)));
  EXPECT_EQ(value(Metric::sync_coverage_seconds_total, {"covered"}), 0);
  EXPECT_EQ(value(Metric::sync_coverage_seconds_total, {"blind"}), 0);
  EXPECT_EQ(value(Metric::sync_gaps_total), 0);
  for (const auto reason : record::kNames<record::SyncDrop>) {
    EXPECT_EQ(value(Metric::sync_records_dropped_total, {reason}), 0) << reason;
  }
}

TEST_F(SyncMetricsTest, ABlindLedgerNeverReadsAsZeroWhateverTheReason) {
  for (int reason = 0; reason < record::kCount<record::SyncReason>; ++reason) {
    for (const SyncSource source : {SyncSource::off, SyncSource::none}) {
      put(fakes::blind_syncs(source, static_cast<SyncReason>(reason)));
      expect_nothing_counted();
      EXPECT_EQ(value(Metric::sync_source_info,
                      {name_of(source), name_of(static_cast<SyncReason>(reason))}),
                1);
    }
  }
  EXPECT_EQ(value(Metric::sync_coverage_seconds_total, {"blind"}), 1.5);
}

TEST_F(SyncMetricsTest, CountersStandAtZeroAsSoonAsItCounts) {
  for (const SyncSource source : {SyncSource::cupti, SyncSource::shared}) {
    const auto metrics = std::make_shared<MetricSet>(fakes::fake_run());
    SyncMetrics exporter(*metrics);
    SyncSummary syncs;
    syncs.source = source;
    syncs.reason = SyncReason::gated;
    exporter.put(syncs);
    EXPECT_EQ(series_of(*metrics, Metric::host_syncs_total).size(), 27U);
    EXPECT_EQ(series_of(*metrics, Metric::host_sync_seconds_total).size(), 27U);
    EXPECT_EQ(series_of(*metrics, Metric::host_syncs_by_phase_total).size(), 5U);
    EXPECT_EQ(series_of(*metrics, Metric::host_sync_phase_seconds_total).size(), 5U);
    // Those of a profiler nobody can tell from the others.
    EXPECT_THAT(series_of(*metrics, Metric::device_polls_total),
                ElementsAre(std::pair("gradvane", 0), std::pair("training", 0)));
    EXPECT_EQ(series_of(*metrics, Metric::device_poll_seconds_total).size(), 2U);
    EXPECT_THAT(series_of(*metrics, Metric::host_sync_location_seconds_total),
                ElementsAre(std::pair("other", 0)));
    for (const Metric metric : kOnlyWhereCounted) {
      for (const auto& [labels, value] : series_of(*metrics, metric)) EXPECT_EQ(value, 0) << labels;
    }
  }
}

TEST_F(SyncMetricsTest, ATimeThatWasCountedBetweenTwoSummariesIsCounted) {
  SyncSummary syncs = fakes::blind_syncs(SyncSource::none, SyncReason::yielded);
  syncs.covered_seconds = 0.25;
  put(syncs);
  EXPECT_EQ(value(Metric::host_syncs_total, {"stream", "training"}), 0);
}

TEST_F(SyncMetricsTest, ShowsWhatTheLedgerCounted) {
  SyncSummary syncs = fakes::fake_syncs(16);
  syncs.dropped = {1, 2, 3, 4};
  syncs.gaps = 5;
  syncs.steps_over = {6, 7, 0};
  syncs.own_budget = 1;
  put(syncs);
  EXPECT_EQ(value(Metric::host_syncs_total, {"d2h_read", "training"}), 32);
  EXPECT_EQ(value(Metric::host_sync_seconds_total, {"d2h_read", "training"}), 0.25);
  EXPECT_EQ(value(Metric::host_syncs_total, {"event", "gradvane"}), 1);
  EXPECT_EQ(value(Metric::host_syncs_total, {"event", "training"}), 0);
  EXPECT_EQ(value(Metric::host_syncs_by_phase_total, {"backward"}), 32);
  EXPECT_EQ(value(Metric::host_sync_phase_seconds_total, {"data"}), 0.0625);
  EXPECT_EQ(value(Metric::host_syncs_by_phase_total, {"forward"}), 0);
  EXPECT_EQ(value(Metric::device_polls_total, {"training"}), 64);
  EXPECT_EQ(value(Metric::device_poll_seconds_total, {"training"}), 0.00390625);
  EXPECT_EQ(value(Metric::sync_coverage_seconds_total, {"covered"}), 2);
  EXPECT_EQ(value(Metric::sync_gaps_total), 5);
  EXPECT_EQ(value(Metric::sync_records_dropped_total, {"unbalanced"}), 4);
  EXPECT_EQ(value(Metric::sync_budget, {"gradvane"}), 1);
  EXPECT_EQ(value(Metric::sync_budget, {"training"}), 8);
  EXPECT_EQ(value(Metric::sync_budget_breaches_total, {"training"}), 6);
  EXPECT_EQ(value(Metric::sync_budget_breaches_total, {"gradvane"}), 7);
}

TEST_F(SyncMetricsTest, TheTrainingHasABudgetOnlyWhereOneIsSet) {
  SyncSummary syncs = fakes::fake_syncs(4);
  syncs.budget.reset();
  put(syncs);
  EXPECT_THAT(series(Metric::sync_budget), ElementsAre(std::pair("gradvane", 0)));
  EXPECT_THAT(series(Metric::sync_budget_breaches_total), ElementsAre(std::pair("gradvane", 0)));
}

TEST_F(SyncMetricsTest, NothingThatWasCountedGoesAwayOrDownWhenCountingStops) {
  put(fakes::fake_syncs(16));
  std::map<Metric, std::map<std::string, double>> before;
  for (const Metric metric : kOnlyWhereCounted) before[metric] = series(metric);
  put(fakes::blind_syncs(SyncSource::none, SyncReason::lost));
  put(fakes::fake_syncs(3));
  put({});
  for (const Metric metric : kOnlyWhereCounted) EXPECT_EQ(series(metric), before[metric]);
}

TEST_F(SyncMetricsTest, ThereIsOneSourceAndTheOneBeforeIsGone) {
  const auto size = value(Metric::series);
  put(fakes::blind_syncs(SyncSource::none, SyncReason::no_cuda));
  EXPECT_THAT(series(Metric::sync_source_info), ElementsAre(std::pair("no_cuda none", 1)));
  put(fakes::blind_syncs(SyncSource::none, SyncReason::taken));
  EXPECT_THAT(series(Metric::sync_source_info), ElementsAre(std::pair("taken none", 1)));
  EXPECT_EQ(value(Metric::series), size);
  put(fakes::fake_syncs(1));
  put(fakes::fake_syncs(2));
  EXPECT_THAT(series(Metric::sync_source_info), ElementsAre(std::pair("counting cupti", 1)));
}

TEST_F(SyncMetricsTest, TheLatestStepThatWasCountedShowsTheCallsThatWaited) {
  record::StepRecord record;
  record.run_step = 1;
  const auto export_step = [&] {
    EXPECT_EQ(exporter_.export_step(record, {}, *fakes::fake_model()), ExportResult::ok);
  };
  export_step();
  EXPECT_THAT(series(Metric::step_host_syncs), IsEmpty());
  record.syncs.emplace();
  record.syncs->calls[0] = {1, 2, 4, 8, 16, 32, 64, 128, 1000};
  record.syncs->calls[1][2] = 1;
  export_step();
  EXPECT_THAT(
      series(Metric::step_host_syncs),
      ElementsAre(std::pair("gradvane", 1), std::pair("profiler", 0), std::pair("training", 255)));
  record.syncs.reset();
  export_step();
  EXPECT_EQ(value(Metric::step_host_syncs, {"training"}), 255);
}

// ---- places in the code ---------------------------------------------------------------------------

using Seconds = std::map<std::string, double>;

/// A ledger that knows places by name, and nothing else.
SyncSummary ledger(const Seconds& places) {
  SyncSummary syncs;
  syncs.source = SyncSource::cupti;
  syncs.reason = SyncReason::counting;
  for (const auto& [location, seconds] : places) {
    record::SyncSite& site = syncs.sites.emplace_back();
    site.location = location;
    site.total = {std::isnan(seconds) ? 0 : static_cast<std::int64_t>(seconds * 1024), seconds};
  }
  return syncs;
}

double sum_of(const Seconds& places) {
  double sum = 0;
  for (const auto& [location, seconds] : places) sum += seconds;
  return sum;
}

std::string numbered(int place) { return "train.py:" + std::to_string(place); }

TEST_F(SyncMetricsTest, SitesOfOnePlaceAreAddedUpAndOnlyTheTrainingHasPlaces) {
  put(fakes::fake_syncs(16));
  EXPECT_THAT(
      series(Metric::host_sync_location_seconds_total),
      ElementsAre(std::pair("<string>:7", 0.125), std::pair("libcublas.so.12!f+0x12", 0.001953125),
                  std::pair("other", 0), std::pair("train.py:41", 0.3125)));
  EXPECT_EQ(value(Metric::host_sync_location_total, {"train.py:41"}), 48);
}

TEST_F(SyncMetricsTest, WhatACaptureRejectedIsInNoPlace) {
  SyncSummary syncs = ledger({{"a", 1}, {"b", 2}});
  record::SyncSite rejected = syncs.sites[0];
  rejected.kind = SyncKind::rejected_in_capture;
  syncs.sites.push_back(rejected);
  rejected.location = "c";
  syncs.sites.push_back(rejected);
  put(syncs);
  EXPECT_THAT(series(Metric::host_sync_location_seconds_total),
              ElementsAre(std::pair("a", 1), std::pair("b", 2), std::pair("other", 0)));
  EXPECT_EQ(value(Metric::host_sync_location_total, {"a"}), 1024);
}

TEST_F(SyncMetricsTest, ThePlacesThatTookMostTimeHaveSeriesAndTheRestIsOther) {
  Seconds places;
  for (int i = 1; i <= 30; ++i) places[numbered(i)] = i;
  put(ledger(places));
  const auto shown = series(Metric::host_sync_location_seconds_total);
  EXPECT_EQ(shown.size(), 21U);
  for (int i = 11; i <= 30; ++i) EXPECT_EQ(shown.at(numbered(i)), i);
  EXPECT_EQ(shown.at("other"), 55);
  EXPECT_EQ(value(Metric::host_sync_location_total, {"other"}), 55 * 1024);
}

TEST_F(SyncMetricsTest, APlaceThatOvertakesLaterCountsInOtherAndNothingTwice) {
  Seconds places;
  for (int i = 1; i <= 21; ++i) places[numbered(i)] = i;
  put(ledger(places));
  places[numbered(1)] = 1000;
  places["new.py:1"] = 5000;
  put(ledger(places));
  const auto shown = series(Metric::host_sync_location_seconds_total);
  EXPECT_EQ(shown.size(), 21U);
  EXPECT_EQ(shown.at("other"), 6000);
  EXPECT_EQ(shown.at(numbered(2)), 2);
  EXPECT_EQ(sum_of(shown), sum_of(places));
}

TEST_F(SyncMetricsTest, WhatTheLedgerItselfCallsOtherTakesNoPlace) {
  Seconds places{{"other", 1e6}};
  for (int i = 1; i <= 20; ++i) places[numbered(i)] = i;
  put(ledger(places));
  EXPECT_EQ(series(Metric::host_sync_location_seconds_total), places);
}

TEST_F(SyncMetricsTest, HoweverPlacesComeAndGrowNoSeriesFallsOrGoesAndTheSumIsAllOfIt) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> place(1, 60);
  std::uniform_int_distribution<int> gain(0, 4096);  // of 1/1024 s: sums are exact in any order
  Seconds places;
  std::map<std::string, double> before;
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 5; ++i) places[numbered(place(random))] += gain(random) / 1024.0;
    put(ledger(places));
    const auto shown = series(Metric::host_sync_location_seconds_total);
    const auto calls = series(Metric::host_sync_location_total);
    ASSERT_LE(shown.size(), 21U);
    ASSERT_EQ(sum_of(shown), sum_of(places));
    ASSERT_EQ(sum_of(calls), sum_of(places) * 1024);
    for (const auto& [location, seconds] : before) {
      ASSERT_TRUE(shown.contains(location)) << location;
      ASSERT_GE(shown.at(location), seconds) << location;
    }
    for (const auto& [location, seconds] : shown) {
      if (location != "other") {
        ASSERT_EQ(seconds, places.at(location));
      }
    }
    before = shown;
  }
  EXPECT_EQ(before.size(), 21U);
  EXPECT_GT(before.at("other"), 0);
}

TEST_F(SyncMetricsTest, ALedgerThatForgetsAPlaceOrCountsBackLowersNothing) {
  Seconds places;
  for (int i = 1; i <= 25; ++i) places[numbered(i)] = i;
  put(ledger(places));
  const auto before = series(Metric::host_sync_location_seconds_total);
  put(ledger({{numbered(25), 1}, {numbered(1), 0.5}}));
  EXPECT_EQ(series(Metric::host_sync_location_seconds_total), before);
  places[numbered(1)] = 0.5;
  places[numbered(2)] += 8;
  put(ledger(places));
  EXPECT_EQ(value(Metric::host_sync_location_seconds_total, {"other"}), before.at("other") + 8);
}

TEST_F(SyncMetricsTest, WhereSeriesRunOutPlacesCountInOther) {
  Seconds places;
  for (int i = 1; i <= 15; ++i) places[numbered(i)] = i;
  bool has_seen_some = false;
  for (std::size_t limit = 100; limit < 400; ++limit) {
    MetricSet metrics(fakes::fake_run(), {.max_series = limit});
    SyncMetrics exporter(metrics);
    exporter.put(ledger(places));
    const auto shown = series_of(metrics, Metric::host_sync_location_seconds_total);
    const auto calls = series_of(metrics, Metric::host_sync_location_total);
    if (!shown.contains("other") || !calls.contains("other")) continue;
    ASSERT_EQ(sum_of(shown), sum_of(places)) << limit;
    ASSERT_EQ(sum_of(calls), sum_of(places) * 1024) << limit;
    has_seen_some = has_seen_some || (shown.size() > 2 && shown.size() < 16);
  }
  EXPECT_TRUE(has_seen_some);
}

TEST_F(SyncMetricsTest, TimeThatIsNoNumberLeavesTheOtherTimesAlone) {
  put(ledger({{"a", 1}, {"b", 2}}));
  SyncSummary syncs = ledger({{"a", 3}, {"b", 2}, {"c", std::nan("")}});
  syncs.sites[1].total.seconds = std::nan("");
  syncs.sites.push_back(syncs.sites[2]);
  syncs.sites.back().location = "a";
  put(syncs);
  EXPECT_EQ(value(Metric::host_sync_location_seconds_total, {"a"}), 3);
  EXPECT_EQ(value(Metric::host_sync_location_seconds_total, {"b"}), 2);
}

}  // namespace
}  // namespace gradvane::exporters
