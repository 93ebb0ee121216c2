#include "exporters/prometheus/prometheus_exporter.hpp"

#include <gtest/gtest.h>
#include <prometheus/metric_family.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "exporters/prometheus/exposition.hpp"
#include "record/names.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using record::Metric;
using record::NonfiniteKind;
using record::Site;

class PrometheusExporterTest : public testing::Test {
 protected:
  PrometheusExporterTest() {
    EXPECT_EQ(exporter_.start(fakes::fake_run(), model_), ExportResult::ok);
  }

  void export_current() {
    const auto& [record, detail] = training_.current();
    EXPECT_EQ(exporter_.export_step(record, detail, *model_), ExportResult::ok);
  }
  void step() {
    training_.next();
    export_current();
  }
  double value(Metric metric, MetricSet::LabelValues labels = {}) const {
    return metrics_->value(metric, labels);
  }
  bool is_absent(Metric metric, MetricSet::LabelValues labels = {}) const {
    return std::isnan(value(metric, labels));
  }
  double bad_steps_in_all() const {
    double sum = 0;
    for (const auto& family : metrics_->collect()) {
      if (family.name != "gradvane_nonfinite_steps_total") continue;
      for (const auto& series : family.metric) sum += series.counter.value;
    }
    return sum;
  }

  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  std::shared_ptr<MetricSet> metrics_ = std::make_shared<MetricSet>(fakes::fake_run());
  PrometheusExporter exporter_{metrics_};
  FakeTraining training_{model_};
};

TEST_F(PrometheusExporterTest, CountersOfAGroupAreBornWithItsFirstBadStep) {
  for (const std::string& group : model_->groups) {
    for (const auto site : {"grad", "weight"}) {
      for (const auto kind : record::kNames<record::NonfiniteKind>) {
        EXPECT_TRUE(is_absent(Metric::nonfinite_steps_total, {site, kind, group})) << group;
      }
    }
  }
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::nan);
  export_current();
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "nan", "blocks.0.mlp"}), 1);
  EXPECT_TRUE(is_absent(Metric::nonfinite_steps_total, {"grad", "pos_inf", "blocks.0.mlp"}));
  EXPECT_TRUE(is_absent(Metric::nonfinite_steps_total, {"grad", "nan", "embedding"}));
}

TEST_F(PrometheusExporterTest, CountersThatBelongToNoGroupStandAtZeroBeforeTheFirstStep) {
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"loss", "nan", "loss"}), 0);
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "nan", "unknown"}), 0);
  EXPECT_EQ(value(Metric::run_state, {"starting"}), 1);
}

TEST_F(PrometheusExporterTest, NothingIsMeasuredBeforeTheFirstStep) {
  for (const Metric metric :
       {Metric::loss, Metric::grad_norm, Metric::run_step, Metric::weight_norm, Metric::grad_health,
        Metric::tokens_total, Metric::update_ratio}) {
    EXPECT_TRUE(is_absent(metric)) << record::info_of(metric).name;
  }
}

TEST_F(PrometheusExporterTest, OfSeveralOptimizersEachHasItsOwnNumbers) {
  std::int64_t run_step = 0;
  const auto step_of = [&](std::int32_t optimizer, double loss, bool leads) {
    training_.next();
    run_step += leads ? 1 : 0;
    training_.current().record.run_step = run_step;
    training_.current().record.optimizer = optimizer;
    training_.current().record.loss = loss;
    training_.current().record.params = {static_cast<std::int32_t>(loss)};  // frozen ones
    const auto& [record, detail] = training_.current();
    EXPECT_EQ(exporter_.export_step(record, detail, training_.model()), ExportResult::ok);
  };
  step_of(1, 5, true);
  step_of(1, 4, true);
  EXPECT_EQ(value(Metric::loss), 4);  // so far it is the only one
  EXPECT_EQ(value(Metric::params, {"frozen"}), 4);
  step_of(0, 7, false);
  EXPECT_TRUE(is_absent(Metric::loss));
  EXPECT_TRUE(is_absent(Metric::grad_norm));
  EXPECT_EQ(value(Metric::loss, {"0"}), 7);
  EXPECT_TRUE(is_absent(Metric::params, {"frozen"}));
  EXPECT_EQ(value(Metric::params, {"frozen", "0"}), 7);
  step_of(1, 3, true);
  EXPECT_EQ(value(Metric::loss, {"1"}), 3);
  EXPECT_EQ(value(Metric::loss, {"0"}), 7);
  for (int other = 2; other < 9; ++other) step_of(other, other, false);
  EXPECT_EQ(value(Metric::loss, {"7"}), 7);
  EXPECT_TRUE(is_absent(Metric::loss, {"8"}));  // the ninth
  // Then another training begins, as the next fold of a cross-validation.
  step_of(20, 2, true);
  EXPECT_EQ(value(Metric::loss), 2);
  EXPECT_TRUE(is_absent(Metric::loss, {"1"}));
  EXPECT_TRUE(is_absent(Metric::params, {"frozen", "1"}));
}

TEST_F(PrometheusExporterTest, ALostRecordOfTheLeaderMakesNobodyElseLead) {
  const auto put = [&](std::int32_t optimizer, std::int64_t run_step, std::int64_t lost) {
    training_.next();
    training_.current().record.optimizer = optimizer;
    training_.current().record.run_step = run_step;
    training_.current().record.dropped_before = lost;
    export_current();
  };
  for (std::int64_t run_step = 1; run_step <= 2; ++run_step) {
    put(0, run_step, 0);
    put(1, run_step, 0);
  }
  put(1, 3, 1);  // that of the leader never arrived
  EXPECT_TRUE(is_absent(Metric::loss));
  EXPECT_FALSE(is_absent(Metric::loss, {"0"}));
  EXPECT_FALSE(is_absent(Metric::loss, {"1"}));
}

TEST_F(PrometheusExporterTest, OneThatStepsNoMoreBesideTheLeaderGivesItsPlaceToTheNext) {
  std::int64_t run_step = 0;
  const auto step_of = [&](std::int32_t optimizer) {
    training_.next();
    training_.current().record.optimizer = optimizer;
    training_.current().record.run_step = run_step;
    export_current();
  };
  for (std::int32_t head = 1; head <= 20; ++head) {
    for (int i = 0; i < 3; ++i) {
      ++run_step;
      step_of(0);
      step_of(head);
    }
    EXPECT_FALSE(is_absent(Metric::loss, {std::to_string(head)})) << head;
    EXPECT_FALSE(is_absent(Metric::loss, {"0"}));
  }
  EXPECT_TRUE(is_absent(Metric::loss, {"1"}));
  EXPECT_TRUE(is_absent(Metric::learning_rate, {"1", "0"}));
}

TEST_F(PrometheusExporterTest, TrainingsOneAfterAnotherAreOneSeries) {
  for (int fold = 0; fold < 20; ++fold) {
    for (int i = 0; i < 3; ++i) {
      training_.next();
      training_.current().record.optimizer = fold;
      training_.current().record.loss = fold;
      export_current();
      EXPECT_EQ(value(Metric::loss), fold);
      EXPECT_TRUE(is_absent(Metric::loss, {std::to_string(fold)}));
      EXPECT_EQ(value(Metric::learning_rate, {std::to_string(fold), "0"}), 1e-3);
      EXPECT_TRUE(is_absent(Metric::learning_rate, {std::to_string(fold - 1), "0"}));
    }
  }
}

TEST_F(PrometheusExporterTest, AStepShowsInItsMetrics) {
  for (int i = 0; i < 10; ++i) step();
  const auto& record = training_.current().record;
  EXPECT_EQ(value(Metric::steps_total), 10);
  EXPECT_EQ(value(Metric::micro_steps_total), 10);
  EXPECT_EQ(value(Metric::run_step), 10);
  EXPECT_EQ(value(Metric::last_step_timestamp_seconds), record.time);
  EXPECT_EQ(value(Metric::loss), *record.loss);
  EXPECT_EQ(value(Metric::grad_norm), *record.grad_norm);
  EXPECT_EQ(value(Metric::grad_norm_at_step), *record.grad_norm_at_step);
  EXPECT_EQ(value(Metric::clip_coefficient), *record.clip_coefficient);
  EXPECT_EQ(value(Metric::learning_rate, {"0", "0"}), 1e-3);
  EXPECT_EQ(value(Metric::params, {"finite"}), 9);
  EXPECT_EQ(value(Metric::params, {"missing"}), 0);
  EXPECT_DOUBLE_EQ(value(Metric::phase_seconds_total, {"forward"}), 0.4);
  EXPECT_TRUE(is_absent(Metric::phase_seconds_total, {"other"}));
  EXPECT_EQ(value(Metric::tokens_total), 20480);
  EXPECT_TRUE(is_absent(Metric::samples_total));
  EXPECT_EQ(value(Metric::user_metric, {"accuracy"}), record.user[0]);
  EXPECT_EQ(value(Metric::group_grad_norm, {"blocks.0.mlp"}),
            *training_.current().detail.groups[2].grad_norm);
  EXPECT_EQ(value(Metric::site_reads_total, {"grad"}), 10);
  EXPECT_EQ(value(Metric::site_reads_total, {"weight"}), 1);
  EXPECT_DOUBLE_EQ(value(Metric::agent_seconds_total, {"hooks"}), 0.004);
}

TEST_F(PrometheusExporterTest, AValueThatAStepDoesNotMeasureKeepsItsLastOne) {
  for (int i = 0; i < 13; ++i) step();
  EXPECT_EQ(value(Metric::weight_norm), 25.1);  // of step 10
  EXPECT_EQ(value(Metric::group_weight_norm, {"embedding"}), 7);
}

TEST_F(PrometheusExporterTest, OneBadGradientIsExactlyOneBadStepOfItsSiteKindAndGroup) {
  for (int i = 1; i <= 60; ++i) {
    training_.next();
    if (i == 50) training_.poison_gradient(3, NonfiniteKind::nan);
    export_current();
  }
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "nan", "blocks.0.mlp"}), 1);
  EXPECT_EQ(bad_steps_in_all(), 1);
  EXPECT_EQ(value(Metric::nonfinite_elements_total, {"grad", "nan"}), 1);
  EXPECT_EQ(value(Metric::params, {"nonfinite"}), 0);
  EXPECT_EQ(value(Metric::nonfinite_values_refused_total), 0);
}

TEST_F(PrometheusExporterTest, AStepWithSeveralKindsAndGroupsCountsOnceForEach) {
  training_.next();
  training_.poison_gradient(0, NonfiniteKind::nan);
  training_.poison_gradient(0, NonfiniteKind::nan, 9);
  training_.poison_gradient(0, NonfiniteKind::pos_inf, 11);
  training_.poison_gradient(3, NonfiniteKind::nan);
  export_current();
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "nan", "embedding"}), 1);
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "pos_inf", "embedding"}), 1);
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "nan", "blocks.0.mlp"}), 1);
  EXPECT_EQ(bad_steps_in_all(), 3);
  EXPECT_EQ(value(Metric::nonfinite_elements_total, {"grad", "nan"}), 3);
}

TEST_F(PrometheusExporterTest, ALossThatIsNotFiniteKeepsTheGaugeAndCounts) {
  step();
  const double before = value(Metric::loss);
  training_.next();
  training_.poison_loss(-std::numeric_limits<double>::infinity());
  export_current();
  EXPECT_EQ(value(Metric::loss), before);
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"loss", "neg_inf", "loss"}), 1);
  EXPECT_EQ(value(Metric::nonfinite_elements_total, {"loss", "neg_inf"}), 1);
  EXPECT_EQ(value(Metric::nonfinite_values_refused_total), 1);
}

TEST_F(PrometheusExporterTest, AHandledOverflowIsNoBadStep) {
  training_.next();
  const auto before = training_.current().record;  // totals know nothing of it
  training_.poison_gradient(3, NonfiniteKind::pos_inf);
  training_.current().record.nonfinite_total = before.nonfinite_total;
  training_.current().record.nonfinite_steps_total = before.nonfinite_steps_total;
  training_.current().record.skipped = record::SkipReason::amp_overflow;
  export_current();
  step();
  EXPECT_EQ(value(Metric::amp_overflow_steps_total), 1);
  EXPECT_EQ(value(Metric::skipped_steps_total, {"amp_overflow"}), 1);
  EXPECT_EQ(bad_steps_in_all(), 0);
}

TEST_F(PrometheusExporterTest, AnOverflowThatPersistsIsABadStep) {
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::pos_inf);
  training_.current().record.skipped = record::SkipReason::amp_overflow;
  training_.current().record.overflow_persists = true;
  export_current();
  EXPECT_EQ(value(Metric::amp_overflow_steps_total), 1);
  EXPECT_EQ(bad_steps_in_all(), 1);
}

TEST_F(PrometheusExporterTest, BadStepsWhoseRecordsWereLostAreCountedUnderTheGroupUnknown) {
  step();
  for (int i = 0; i < 3; ++i) {  // never exported
    training_.next();
    training_.poison_gradient(3, NonfiniteKind::neg_inf);
  }
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::nan);
  training_.current().record.dropped_before = 3;
  export_current();
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "neg_inf", "unknown"}), 3);
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "nan", "blocks.0.mlp"}), 1);
  EXPECT_EQ(bad_steps_in_all(), 4);
  EXPECT_EQ(value(Metric::nonfinite_elements_total, {"grad", "neg_inf"}), 3);
  EXPECT_EQ(value(Metric::steps_total), 5);
  EXPECT_EQ(value(Metric::records_dropped_total, {"ring_overrun"}), 3);
}

TEST_F(PrometheusExporterTest, ABadStepWithoutItsDetailIsCountedUnderTheGroupUnknown) {
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::nan);
  EXPECT_EQ(exporter_.export_step(training_.current().record, {}, *model_), ExportResult::ok);
  EXPECT_EQ(value(Metric::nonfinite_steps_total, {"grad", "nan", "unknown"}), 1);
  EXPECT_EQ(bad_steps_in_all(), 1);
}

TEST_F(PrometheusExporterTest, GaugesOfAGroupLeaveWithIt) {
  for (int i = 0; i < 10; ++i) step();
  auto other = std::make_shared<record::ModelInfo>();
  other->id = 2;
  other->groups = {"embedding", "fresh"};
  EXPECT_EQ(exporter_.set_model(other), ExportResult::ok);
  EXPECT_FALSE(is_absent(Metric::group_grad_norm, {"embedding"}));
  EXPECT_TRUE(is_absent(Metric::group_grad_norm, {"blocks.0.mlp"}));
  EXPECT_TRUE(is_absent(Metric::group_weight_norm, {"blocks.0.mlp"}));
  EXPECT_EQ(value(Metric::plan_rebuilds_total), 1);
}

TEST_F(PrometheusExporterTest, TheModelOfTheFirstStepIsNoRebuild) {
  auto later = std::make_shared<record::ModelInfo>(*model_);
  later->id = 9;
  EXPECT_EQ(exporter_.set_model(later), ExportResult::ok);
  EXPECT_EQ(value(Metric::plan_rebuilds_total), 0);
}

TEST_F(PrometheusExporterTest, ExactlyOneStateIsOne) {
  for (const auto state : {record::RunState::running, record::RunState::stalled,
                           record::RunState::finished, record::RunState::failed}) {
    EXPECT_EQ(exporter_.set_run_state(state, ""), ExportResult::ok);
    double sum = 0;
    for (const auto name : record::kNames<record::RunState>)
      sum += value(Metric::run_state, {name});
    EXPECT_EQ(sum, 1);
    EXPECT_EQ(value(Metric::run_state, {name_of(state)}), 1);
  }
}

// ---- golden file ----------------------------------------------------------------------------------

constexpr std::string_view kHole = "%float";

/// `expected` is `actual`, or ends in a hole where `actual` ends in a number. What differs by the
/// mathematics library is holed; names, labels and whole numbers are not.
bool matches(std::string_view expected, const std::string& actual) {
  if (!expected.ends_with(kHole)) return expected == actual;
  const std::string_view before = expected.substr(0, expected.size() - kHole.size());
  if (!actual.starts_with(before) || actual.size() == before.size()) return false;
  char* end = nullptr;
  (void)std::strtod(actual.c_str() + before.size(), &end);
  return *end == '\0';
}

/// The line with a hole for a number that has many digits after the point.
std::string with_hole(const std::string& line) {
  const auto number = line.rfind(' ') + 1;
  const auto point = line.find('.', number);
  if (line.front() == '#' || point == std::string::npos || line.size() - point < 7) return line;
  return line.substr(0, number).append(kHole);
}

TEST_F(PrometheusExporterTest, TheWholeExpositionIsThatOfTheGoldenFile) {
  for (int i = 1; i <= 12; ++i) {
    training_.next();
    if (i == 5) training_.poison_gradient(3, NonfiniteKind::nan);
    export_current();
  }
  EXPECT_EQ(exporter_.export_incident(fakes::fake_incident(1, 5)), ExportResult::ok);
  EXPECT_EQ(
      exporter_.export_syncs(std::make_shared<const record::SyncSummary>(fakes::fake_syncs(12))),
      ExportResult::ok);
  record::GovernorSummary governor;
  governor.has_snapshots = true;
  governor.ranks_agree = true;
  governor.snapshots = {7, 1, 0, 0, 0, 0, 0, 0, 2};
  governor.rollbacks = {1, 0, 0, 1};
  governor.newest_snapshot = record::KeptSnapshot{10, 2.5};
  EXPECT_EQ(exporter_.export_governor(governor), ExportResult::ok);
  EXPECT_EQ(exporter_.set_run_state(record::RunState::running, ""), ExportResult::ok);

  for (const auto& [format, name] :
       {std::pair(ExpositionFormat::text_0_0_4, "metrics.txt"),
        std::pair(ExpositionFormat::openmetrics_1_0_0, "metrics.openmetrics")}) {
    std::string text;
    write_exposition(text, metrics_->collect(), format, metrics_->exemplars());
    const std::string path =
        std::string(std::getenv("GRADVANE_SOURCE_DIR")) + "/tests/exporters/golden/" + name;
    std::istringstream actual(text);
    std::string line;
    if (std::getenv("GRADVANE_UPDATE_GOLDEN") != nullptr) {
      std::ofstream golden(path);
      while (std::getline(actual, line)) golden << with_hole(line) << '\n';
      continue;
    }
    std::ifstream golden(path);
    ASSERT_TRUE(golden) << path;
    std::string expected_line;
    while (std::getline(golden, expected_line)) {
      ASSERT_TRUE(std::getline(actual, line)) << "missing: " << expected_line;
      ASSERT_TRUE(matches(expected_line, line))
          << name << "\nexpected: " << expected_line << "\nactual:   " << line
          << "\nA wanted change: run this test with GRADVANE_UPDATE_GOLDEN=1 and look at the diff.";
    }
    EXPECT_FALSE(std::getline(actual, line)) << "too much: " << line;
  }
}

}  // namespace
}  // namespace gradvane::exporters
