#include "exporters/replay/diff.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "exporters/board/status_board.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "exporters/replay/replay.hpp"
#include "tests/exporters/recording/every_field.hpp"
#include "tests/exporters/recording/recorded_run.hpp"

namespace gradvane::exporters::recording {
namespace {

using fakes::RecordedRun;
using fakes::recording_in;
using fakes::text_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// A run of so many steps, each changed by `change`.
std::shared_ptr<const Recording> recorded(int steps,
                                          const std::function<void(fakes::FakeStep&)>& change = {},
                                          int layers = 2, std::string weight_every = "10") {
  RecordedRun run({}, layers);
  run.run.settings[0].value = std::move(weight_every);
  EXPECT_EQ(run.start(), ExportResult::ok);
  for (int i = 0; i < steps; ++i) {
    auto& step = run.training.next();
    if (change) change(step);
    EXPECT_EQ(run.recorder->export_step(step.record, step.detail, *run.model), ExportResult::ok);
  }
  EXPECT_EQ(run.recorder->write_now("exit"), ExportResult::ok);
  return recording_in(run.recorder->last_file());
}

Diff diff(const Recording& a, const Recording& b, std::optional<std::int64_t> step_a = {},
          std::optional<std::int64_t> step_b = {}) {
  return diff_of({"a.gvrec", &a, step_a}, {"b.gvrec", &b, step_b});
}

TEST(Diff, OfTheSameRunIsNothing) {
  const auto a = recorded(30);
  const auto b = recorded(40);
  const Diff same = diff(*a, *b);
  EXPECT_EQ(same.common_steps, 30);
  EXPECT_FALSE(same.first_bits);
  EXPECT_FALSE(same.first_beyond);
  EXPECT_TRUE(same.settings.empty());
  EXPECT_TRUE(same.params.empty() && same.groups.empty());
  EXPECT_THAT(text_of(same), HasSubstr("no number of them differs"));
}

TEST(Diff, TellsADifferentBitFromADifferentRun) {
  const auto a = recorded(30);
  const auto b = recorded(30, [](fakes::FakeStep& step) {
    if (step.record.run_step >= 12) *step.record.loss *= 1 + 1e-9;
    if (step.record.run_step >= 20) step.record.grad_norm = *step.record.grad_norm * 2;
  });
  const Diff found = diff(*a, *b);
  ASSERT_TRUE(found.first_bits && found.first_beyond);
  EXPECT_EQ(found.first_bits->run_step, 12);
  EXPECT_EQ(found.first_bits->what, "loss");
  EXPECT_EQ(found.first_beyond->run_step, 20);
  EXPECT_EQ(found.first_beyond->what, "gradient norm");
  EXPECT_EQ(found.moment_a, 20) << "details are those of the step in which they part";
}

TEST(Diff, PutsTheParameterThatIsFarthestApartFirst) {
  const auto a = recorded(30);
  const auto b = recorded(30, [](fakes::FakeStep& step) {
    if (step.record.run_step < 20) return;
    step.record.loss = 9;
    step.detail.params[2].grad->norm *= 3;
    step.detail.params[7].grad->abs_max *= 0.01;
    step.detail.groups[1].grad_norm = *step.detail.groups[1].grad_norm * 2;
  });
  const Diff found = diff(*a, *b);
  ASSERT_EQ(found.params.size(), 2U);
  EXPECT_EQ(found.params[0].name, "blocks.1.mlp.weight");
  EXPECT_EQ(found.params[0].what, "largest gradient");
  EXPECT_NEAR(found.params[0].log_ratio, std::log(0.01), 1e-9);
  EXPECT_EQ(found.params[1].name, "blocks.0.attention.bias");
  ASSERT_EQ(found.groups.size(), 1U);
  EXPECT_THAT(text_of(found), HasSubstr("blocks.0.attention: gradient norm"));
}

TEST(Diff, SaysWhichSettingsAndParametersAreNotTheSame) {
  const auto a = recorded(5);
  const auto b = recorded(5, {}, 3, "50");
  const Diff found = diff(*a, *b);
  ASSERT_EQ(found.settings.size(), 1U);
  EXPECT_EQ(found.settings[0].key, "weight_every");
  EXPECT_EQ(found.settings[0].b, "50");
  EXPECT_THAT(found.params_only_in_b,
              ElementsAre("blocks.2.attention.weight", "blocks.2.attention.bias",
                          "blocks.2.mlp.weight", "blocks.2.mlp.bias"));
  EXPECT_TRUE(found.params_only_in_a.empty());
}

TEST(Diff, ComparesTwoMomentsOfOneRun) {
  const auto a = recorded(30);
  const Diff found = diff(*a, *a, 5, 25);
  EXPECT_EQ(found.moment_a, 5);
  EXPECT_EQ(found.moment_b, 25);
  EXPECT_FALSE(found.params.empty());
}

TEST(Diff, SaysWhyAMomentIsNotCompared) {
  const auto a = recorded(30);
  EXPECT_EQ(diff(*a, *a, 31, 5).problem, "step 31 is not in a.gvrec, which has steps 1 to 30");
  const auto later = recorded(1, [](fakes::FakeStep& step) { step.record.run_step = 900; });
  EXPECT_THAT(diff(*a, *later).problem, HasSubstr("no step in common"));
}

/// Everything that a reader left of a gradient or weights without a finite element.
void ruin(record::TensorNumbers& numbers) {
  numbers.nonfinite = {numbers.numel, 0, 0};
  numbers.first_nonfinite = 0;
  numbers.norm = numbers.sum = numbers.abs_max = 0;
}

std::vector<std::string> told(const std::vector<RatioDifference>& all, const std::string& name) {
  std::vector<std::string> words;
  for (const RatioDifference& one : all)
    if (one.name == name) words.push_back(one.what);
  return words;
}

TEST(Diff, DoesNotCompareNormsOfWhatIsNotFiniteButTellsHowMuchIsNot) {
  const auto a = recorded(30);
  const auto b = recorded(30, [](fakes::FakeStep& step) {
    if (step.record.run_step != 20) return;
    ruin(*step.detail.params[3].grad);
    ruin(*step.detail.params[3].weight);
    for (const record::Site site : {record::Site::grad, record::Site::weight}) {
      const auto at = static_cast<std::size_t>(site);
      step.record.nonfinite[at] = step.detail.groups[2].nonfinite[at] = {4096, 0, 0};
    }
    step.record.grad_norm = step.record.grad_abs_max = step.record.weight_norm = 0;
    step.detail.groups[2].grad_norm = step.detail.groups[2].weight_norm = 0;
  });
  const Diff found = diff(*a, *b);
  ASSERT_TRUE(found.first_bits && found.first_beyond);
  EXPECT_EQ(found.first_bits->what, "gradient elements not finite");
  EXPECT_EQ(found.first_bits->a, 0);
  EXPECT_EQ(found.first_bits->b, 4096);
  EXPECT_EQ(found.first_beyond->what, "gradient elements not finite");
  const std::vector<std::string> counts{"gradient elements not finite",
                                        "weight elements not finite"};
  EXPECT_EQ(told(found.params, "blocks.0.mlp.weight"), counts);
  EXPECT_EQ(told(found.groups, "blocks.0.mlp"), counts);
  EXPECT_THAT(text_of(found), HasSubstr("blocks.0.mlp.weight: gradient elements not finite A 0, B "
                                        "4096\n"));
  EXPECT_THAT(text_of(diff(*b, *b, 20, 20)),
              HasSubstr("differs; norms of what is not finite are not compared\n"));
}

TEST(Diff, TellsWhereLearningRatesPart) {
  const auto a = recorded(30);
  const auto b = recorded(30, [](fakes::FakeStep& step) {
    if (step.record.run_step >= 12) step.record.lr[0] = 2e-3;
    if (step.record.run_step >= 13) *step.record.loss += 1;
  });
  const Diff found = diff(*a, *b);
  ASSERT_TRUE(found.first_rate);
  EXPECT_EQ(found.first_rate->run_step, 12);
  EXPECT_EQ(found.first_rate->what, "learning rate");
  EXPECT_EQ(found.moment_a, 13) << "the first step that trains otherwise";
  EXPECT_EQ(to_json(found)["first_different_rate"]["b"], 2e-3);
  EXPECT_THAT(text_of(found),
              HasSubstr("first different setting of the optimizer: step 12, learning rate\n"
                        "    A 0.001\n    B 0.002\n"));
  EXPECT_FALSE(diff(*a, *recorded(30)).first_rate);
}

TEST(Diff, TakesWeightsThatOnlyOneOfThemReadForNoDifference) {
  const auto a = recorded(30);
  const auto b = recorded(30, [](fakes::FakeStep& step) {
    step.record.weight_norm.reset();
    step.record.site_measured[index_of(record::Site::weight)].reset();
  });
  EXPECT_FALSE(diff(*a, *b).first_bits);
}

TEST(Diff, TellsBothToPrograms) {
  const auto a = recorded(5);
  const auto b = recorded(5, [](fakes::FakeStep& step) { step.record.loss = std::nan(""); });
  const auto json = to_json(diff(*a, *b));
  EXPECT_EQ(json["first_beyond_tolerance"]["run_step"], 1);
  EXPECT_EQ(json["first_beyond_tolerance"]["b"], "nan");
  EXPECT_EQ(json["common_steps"]["count"], 5);
}

// ---- replay -----------------------------------------------------------------------------------------

TEST(Replay, ShowsTheRunAsItWas) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  StatusBoard live;
  (void)live.start(run.run, run.model);
  run.steps(9);
  auto incident = run.bad_step();
  (void)run.recorder->export_incident(incident);
  (void)live.export_step(run.training.current().record, run.training.current().detail, *run.model);
  (void)run.recorder->set_run_state(record::RunState::failed, "why");
  (void)run.finish();

  StatusBoard board;
  replay(*recording_in(run.recorder->last_file()), board);
  EXPECT_EQ(board.status()->state, record::RunState::failed);
  EXPECT_EQ(board.status()->reason, "why");
  EXPECT_EQ(text_of(*board.status()->latest), text_of(*live.status()->latest));
  EXPECT_EQ(board.status()->incidents.size(), 1U);
  EXPECT_EQ(board.steps(0, 100).size(), 10U);
  EXPECT_EQ(board.params()->rows[3].first_bad->element, 7);
}

TEST(Replay, OfAKilledRunSaysThatItFailedAndWhy) {
  RecordedRun run({.directory = {}, .disk_bytes = 1 << 20});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(9);
  StatusBoard board;
  replay(*recording_in(run.ring()), board);
  EXPECT_EQ(board.status()->state, record::RunState::failed);
  EXPECT_THAT(board.status()->reason, HasSubstr("ends abruptly after step 9"));
}

TEST(Replay, LeavesNoGaugeOfAnIncidentThatClosed) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  auto incident = run.bad_step();
  incident.closed_at = incident.opened_at + 1;
  (void)run.recorder->export_incident(incident);
  (void)run.finish();
  const auto metrics = std::make_shared<MetricSet>(run.run);
  PrometheusExporter prometheus(metrics);
  replay(*recording_in(run.recorder->last_file()), prometheus);
  EXPECT_EQ(metrics->value(record::Metric::incidents_total, {"nonfinite_grad"}), 1);
  EXPECT_EQ(metrics->value(record::Metric::incidents_open, {"nonfinite_grad"}), 0);
}

TEST(Replay, WritesTheStepsAsTheStepLogHasThem) {
  const auto read = recorded(3);
  const std::string text = step_log_of(*read);
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
  EXPECT_EQ(nlohmann::json::parse(text.substr(0, text.find('\n')))["run_step"], 1);
  const auto json = to_json(*read);
  EXPECT_EQ(json["steps"].size(), 3U);
  EXPECT_EQ(json["models"][0]["params"].size(), 9U);
  EXPECT_EQ(json["process"]["settings"].size(), 2U);
}

}  // namespace
}  // namespace gradvane::exporters::recording
