// What holds for every exporter, written once.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "exporters/alert_push/alert_push.hpp"
#include "exporters/board/status_board.hpp"
#include "exporters/exporter.hpp"
#include "exporters/exporter_set.hpp"
#include "exporters/history/run_history.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "exporters/recorder/flight_recorder.hpp"
#include "exporters/step_log/step_log.hpp"
#include "record/numbers.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/files/claimed.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using fakes::Scratch;
using record::RunState;

std::shared_ptr<MetricSet> some_metrics() { return std::make_shared<MetricSet>(fakes::fake_run()); }

constexpr auto kNobodyListens = "http://127.0.0.1:1";

struct Candidate {
  std::string name;
  std::function<std::shared_ptr<Exporter>(const Scratch&)> make;
};

class EveryExporter : public testing::TestWithParam<Candidate> {
 protected:
  Scratch scratch_;
  std::shared_ptr<Exporter> exporter_ = GetParam().make(scratch_);
  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();

  ExportResult start() { return exporter_->start(fakes::fake_run(), model_); }
  ExportResult export_syncs(record::SyncSummary syncs) {
    return exporter_->export_syncs(std::make_shared<const record::SyncSummary>(std::move(syncs)));
  }
};

TEST_P(EveryExporter, IsClosedBeforeStart) {
  FakeTraining training(model_);
  const auto& [record, detail] = training.next();
  EXPECT_EQ(exporter_->set_model(model_), ExportResult::closed);
  EXPECT_EQ(exporter_->export_step(record, detail, *model_), ExportResult::closed);
  EXPECT_EQ(exporter_->export_incident(fakes::fake_incident(1, 1)), ExportResult::closed);
  EXPECT_EQ(export_syncs(fakes::fake_syncs(1)), ExportResult::closed);
  EXPECT_EQ(exporter_->set_run_state(RunState::running, ""), ExportResult::closed);
  EXPECT_EQ(exporter_->finish(std::chrono::seconds(1)), ExportResult::closed);
}

TEST_P(EveryExporter, TakesAWholeRun) {
  ASSERT_EQ(start(), ExportResult::ok);
  FakeTraining training(model_);
  for (int i = 0; i < 25; ++i) {
    const auto& [record, detail] = training.next();
    ASSERT_EQ(exporter_->export_step(record, detail, *model_), ExportResult::ok);
    ASSERT_EQ(exporter_->set_run_state(RunState::running, ""), ExportResult::ok);
  }
  EXPECT_EQ(exporter_->set_run_state(RunState::finished, ""), ExportResult::ok);
  EXPECT_EQ(exporter_->finish(std::chrono::seconds(1)), ExportResult::ok);
}

TEST_P(EveryExporter, IsClosedAfterFinish) {
  ASSERT_EQ(start(), ExportResult::ok);
  ASSERT_EQ(exporter_->finish(std::chrono::seconds(1)), ExportResult::ok);
  FakeTraining training(model_);
  const auto& [record, detail] = training.next();
  EXPECT_EQ(exporter_->export_step(record, detail, *model_), ExportResult::closed);
  EXPECT_EQ(exporter_->export_incident(fakes::fake_incident(1, 1)), ExportResult::closed);
  EXPECT_EQ(export_syncs(fakes::fake_syncs(1)), ExportResult::closed);
  EXPECT_EQ(exporter_->set_run_state(RunState::failed, "late"), ExportResult::closed);
  EXPECT_EQ(exporter_->finish(std::chrono::seconds(1)), ExportResult::closed);
}

TEST_P(EveryExporter, IsClosedInAForkedChildAndGoesOnInTheParent) {
  ASSERT_EQ(start(), ExportResult::ok);
  FakeTraining training(model_);
  const auto& [record, detail] = training.next();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_closed =
        exporter_->set_model(model_) == ExportResult::closed &&
        exporter_->export_step(record, detail, *model_) == ExportResult::closed &&
        exporter_->export_incident(fakes::fake_incident(1, 1)) == ExportResult::closed &&
        export_syncs(fakes::fake_syncs(1)) == ExportResult::closed &&
        exporter_->set_run_state(RunState::failed, "") == ExportResult::closed &&
        exporter_->finish(std::chrono::seconds(1)) == ExportResult::closed;
    ::_exit(is_closed ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(exporter_->export_step(record, detail, *model_), ExportResult::ok);
  EXPECT_EQ(exporter_->finish(std::chrono::seconds(1)), ExportResult::ok);
}

TEST_P(EveryExporter, TakesARunWithoutSteps) {
  ASSERT_EQ(start(), ExportResult::ok);
  EXPECT_EQ(exporter_->set_run_state(RunState::failed, "never stepped"), ExportResult::ok);
  EXPECT_EQ(exporter_->finish(std::chrono::milliseconds(0)), ExportResult::ok);
}

TEST_P(EveryExporter, TakesAStepOfWhichNothingWasMeasured) {
  model_ = std::make_shared<record::ModelInfo>();
  ASSERT_EQ(start(), ExportResult::ok);
  EXPECT_EQ(exporter_->export_step({}, {}, *model_), ExportResult::ok);
}

TEST_P(EveryExporter, TakesAStepWhoseDetailWasLost) {
  ASSERT_EQ(start(), ExportResult::ok);
  FakeTraining training(model_);
  training.next();
  training.poison_gradient(0, record::NonfiniteKind::nan);
  EXPECT_EQ(exporter_->export_step(training.current().record, {}, *model_), ExportResult::ok);
}

TEST_P(EveryExporter, TakesNumbersThatAreNotFiniteEverywhere) {
  ASSERT_EQ(start(), ExportResult::ok);
  FakeTraining training(model_);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    auto [record, detail] = training.next();
    for (const record::StepNumber& number : record::kStepNumbers)
      if (number.stored != nullptr) record.*number.stored = bad;
    record.time = record.agent_seconds = bad;
    record.lr.fill(bad);
    record.lr_count = record::kMaxLearningRates;
    record.user.fill(bad);
    record.phase_seconds.fill(bad);
    detail.params[0].grad->norm = bad;
    for (const record::TensorNumber& number : record::kTensorNumbers) {
      detail.groups[0].*number.group = bad;
      if (number.value != nullptr) (*detail.params[0].grad).*number.value = bad;
    }
    EXPECT_EQ(exporter_->export_step(record, detail, *model_), ExportResult::ok);
  }
}

TEST_P(EveryExporter, TakesIndicesThatPointNowhere) {
  ASSERT_EQ(start(), ExportResult::ok);
  FakeTraining training(model_);
  auto [record, detail] = training.next();
  record.first_nonfinite = {record::Site::grad, record::NonfiniteKind::nan, 1 << 20, 1LL << 60};
  record.first_by_site[1] = record.first_nonfinite;
  record.lr_count = 1000;
  record.user_count = 1000;
  detail.groups.resize(100);
  detail.params.resize(100);
  EXPECT_EQ(exporter_->export_step(record, detail, *model_), ExportResult::ok);
  record.lr_count = record.user_count = -1;
  EXPECT_EQ(exporter_->export_step(record, detail, *model_), ExportResult::ok);
}

TEST_P(EveryExporter, TakesAModelThatChangesWithAndWithoutNotice) {
  ASSERT_EQ(start(), ExportResult::ok);
  auto larger = std::make_shared<record::ModelInfo>(*fakes::fake_model(5));
  larger->id = 2;
  ASSERT_EQ(exporter_->set_model(larger), ExportResult::ok);
  FakeTraining training(larger);
  const auto& [record, detail] = training.next();
  EXPECT_EQ(exporter_->export_step(record, detail, *larger), ExportResult::ok);

  auto smaller = std::make_shared<record::ModelInfo>(*fakes::fake_model(1));
  smaller->id = 3;
  FakeTraining other(smaller);
  const auto& [second, second_detail] = other.next();
  EXPECT_EQ(exporter_->export_step(second, second_detail, *smaller), ExportResult::ok);
}

TEST_P(EveryExporter, TakesWordsThatNeedEscaping) {
  auto run = fakes::fake_run();
  run.run = "a \"run\"\n<b>\\ \xFF";
  auto odd = std::make_shared<record::ModelInfo>(*model_);
  odd->params[0].name = odd->groups[0] = "x\"\n\\<i>\xFF";
  ASSERT_EQ(exporter_->start(run, odd), ExportResult::ok);
  FakeTraining training(odd);
  training.next();
  training.poison_gradient(0, record::NonfiniteKind::nan);
  const auto& [record, detail] = training.current();
  EXPECT_EQ(exporter_->export_step(record, detail, *odd), ExportResult::ok);
  EXPECT_EQ(exporter_->set_run_state(RunState::failed, "\xFF\"<"), ExportResult::ok);
}

TEST_P(EveryExporter, TakesAnIncidentThatGrowsAndCloses) {
  ASSERT_EQ(start(), ExportResult::ok);
  auto incident = fakes::fake_incident(1, 5);
  EXPECT_EQ(exporter_->export_incident(incident), ExportResult::ok);
  incident.steps = 2;
  EXPECT_EQ(exporter_->export_incident(incident), ExportResult::ok);
  incident.closed_at = incident.opened_at + 1;
  EXPECT_EQ(exporter_->export_incident(incident), ExportResult::ok);
}

TEST_P(EveryExporter, TakesSnapshotsThatComeAndGo) {
  EXPECT_EQ(exporter_->export_governor({}), ExportResult::closed);
  ASSERT_EQ(start(), ExportResult::ok);
  EXPECT_EQ(exporter_->export_governor({}), ExportResult::ok);
  record::GovernorSummary summary;
  summary.has_snapshots = true;
  summary.ranks_agree = false;
  summary.snapshots.fill(3);
  summary.rollbacks.fill(2);
  summary.newest_snapshot = record::KeptSnapshot{10, 1.5};
  summary.older_snapshot = record::KeptSnapshot{5, 3.5};
  EXPECT_EQ(exporter_->export_governor(summary), ExportResult::ok);
  summary.newest_snapshot = summary.older_snapshot = std::nullopt;
  EXPECT_EQ(exporter_->export_governor(summary), ExportResult::ok);
}

TEST_P(EveryExporter, TakesHostSyncsThatComeAndGo) {
  ASSERT_EQ(start(), ExportResult::ok);
  EXPECT_EQ(export_syncs({}), ExportResult::ok);
  EXPECT_EQ(export_syncs(fakes::fake_syncs(10)), ExportResult::ok);
  EXPECT_EQ(export_syncs(fakes::fake_syncs(5)), ExportResult::ok);
  EXPECT_EQ(export_syncs(fakes::blind_syncs()), ExportResult::ok);
}

TEST_P(EveryExporter, TakesHostSyncsWhoseNumbersAndWordsAreOdd) {
  ASSERT_EQ(start(), ExportResult::ok);
  for (const double bad : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
    record::SyncSummary syncs = fakes::fake_syncs(3);
    for (record::SyncSite& site : syncs.sites) site.total.seconds = site.max_seconds = bad;
    syncs.totals[0][0].seconds = syncs.by_phase[0].seconds = syncs.polls[0].seconds = bad;
    syncs.covered_seconds = syncs.blind_seconds = bad;
    syncs.sites[0].location = syncs.sites[0].function = syncs.detail = "\xFF<b>\"\n\x1f";
    syncs.sites[1].location = "";
    EXPECT_EQ(export_syncs(syncs), ExportResult::ok);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Exporters, EveryExporter,
    testing::Values(
        Candidate{
            "Prometheus",
            [](const Scratch&) { return std::make_shared<PrometheusExporter>(some_metrics()); }},
        Candidate{"StatusBoard", [](const Scratch&) { return std::make_shared<StatusBoard>(8); }},
        Candidate{"RunHistory", [](const Scratch&) { return std::make_shared<RunHistory>(); }},
        Candidate{"StepLog",
                  [](const Scratch& scratch) {
                    return std::make_shared<StepLog>(
                        StepLogOptions{.path = scratch.path() / "steps.jsonl"});
                  }},
        Candidate{"FlightRecorder",
                  [](const Scratch& scratch) {
                    return std::make_shared<recording::FlightRecorder>(
                        recording::RecorderOptions{.directory = fakes::claimed(scratch.path()),
                                                   .memory_bytes = 1 << 20,
                                                   .steps = 8,
                                                   .disk_bytes = 1 << 20},
                        some_metrics());
                  }},
        Candidate{"AlertPush",
                  [](const Scratch&) {
                    return std::make_shared<AlertPush>(AlertPushOptions{.url = kNobodyListens},
                                                       some_metrics());
                  }},
        Candidate{"ExporterSet",
                  [](const Scratch& scratch) {
                    auto all = std::make_shared<ExporterSet>(some_metrics());
                    all->add(std::make_shared<PrometheusExporter>(some_metrics()));
                    all->add(std::make_shared<StatusBoard>(8));
                    all->add(std::make_shared<StepLog>(
                        StepLogOptions{.path = scratch.path() / "steps.jsonl"}));
                    return all;
                  }}),
    [](const auto& candidate) { return candidate.param.name; });

// ---- the base class -------------------------------------------------------------------------------

/// Has the two required verbs alone. The first one does what it is told to, the second one throws.
class TwoVerbs final : public Exporter {
 public:
  explicit TwoVerbs(std::function<ExportResult()> at_start) : at_start_(std::move(at_start)) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "two_verbs"; }

 private:
  ExportResult on_start(const record::RunInfo& /*run*/,
                        const std::shared_ptr<const record::ModelInfo>& /*model*/) override {
    return at_start_();
  }
  ExportResult on_step(const record::StepRecord& /*record*/, const record::StepDetail& /*detail*/,
                       const record::ModelInfo& /*model*/) override {
    throw std::bad_alloc();
  }

  std::function<ExportResult()> at_start_;
};

TEST(ExporterOfTwoVerbs, FailsWhereItThrowsAndTakesTheRestByDefault) {
  TwoVerbs exporter([] { return ExportResult::ok; });
  const auto model = fakes::fake_model();
  ASSERT_EQ(exporter.start(fakes::fake_run(), model), ExportResult::ok);
  EXPECT_EQ(exporter.export_step({}, {}, *model), ExportResult::failed);
  EXPECT_EQ(exporter.set_model(model), ExportResult::ok);
  EXPECT_EQ(exporter.export_incident(fakes::fake_incident(1, 1)), ExportResult::ok);
  EXPECT_EQ(exporter.export_syncs(std::make_shared<record::SyncSummary>()), ExportResult::ok);
  EXPECT_EQ(exporter.set_run_state(RunState::running, ""), ExportResult::ok);
  EXPECT_EQ(exporter.finish(std::chrono::seconds(0)), ExportResult::ok);
}

TEST(ExporterOfTwoVerbs, StaysOpenAfterAStartThatFails) {
  const auto model = fakes::fake_model();
  TwoVerbs throwing([]() -> ExportResult { throw std::bad_alloc(); });
  EXPECT_EQ(throwing.start(fakes::fake_run(), model), ExportResult::failed);
  EXPECT_EQ(throwing.set_model(model), ExportResult::ok);
  TwoVerbs failing([] { return ExportResult::failed; });
  EXPECT_EQ(failing.start(fakes::fake_run(), model), ExportResult::failed);
  EXPECT_EQ(failing.set_model(model), ExportResult::ok);
}

TEST(ExporterOfTwoVerbs, StaysClosedIfItsStartRefuses) {
  const auto model = fakes::fake_model();
  TwoVerbs refusing([] { return ExportResult::closed; });
  EXPECT_EQ(refusing.start(fakes::fake_run(), model), ExportResult::closed);
  EXPECT_EQ(refusing.set_model(model), ExportResult::closed);
}

// ---- the set --------------------------------------------------------------------------------------

TEST(ExporterSet, CountsWhatFailedAndStillServesTheOthers) {
  const auto metrics = some_metrics();
  const auto board = std::make_shared<StatusBoard>();
  ExporterSet all(metrics);
  all.add(std::make_shared<StepLog>(StepLogOptions{.path = "/dev/full"}));
  all.add(board);
  const auto model = fakes::fake_model();
  ASSERT_EQ(all.start(fakes::fake_run(), model), ExportResult::ok);
  FakeTraining training(model);
  for (int i = 0; i < 3; ++i) {
    const auto& [record, detail] = training.next();
    EXPECT_EQ(all.export_step(record, detail, *model), ExportResult::failed);
  }
  EXPECT_EQ(all.failures(), 3U);
  EXPECT_EQ(metrics->value(record::Metric::export_failures_total, {"step_log"}), 3);
  EXPECT_EQ(board->status()->steps, 3);
}

TEST(ExporterSet, WithoutExportersIsFine) {
  ExporterSet none(nullptr);
  EXPECT_EQ(none.start(fakes::fake_run(), fakes::fake_model()), ExportResult::ok);
  EXPECT_EQ(none.finish(std::chrono::seconds(0)), ExportResult::ok);
}

}  // namespace
}  // namespace gradvane::exporters
