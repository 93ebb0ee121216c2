#include "exporters/replay/story.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/exporters/recording/recorded_run.hpp"

namespace gradvane::exporters::recording {
namespace {

using fakes::RecordedRun;
using fakes::recording_in;
using record::RunState;
using testing::HasSubstr;
using testing::Not;

std::string golden(const std::string& name, const std::string& text) {
  const char* source = std::getenv("GRADVANE_SOURCE_DIR");
  const auto path = std::filesystem::path(source != nullptr ? source : ".") / "tests" /
                    "exporters" / "golden" / name;
  if (std::getenv("GRADVANE_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The gradient of one parameter grows from one step to the next.
void grow(fakes::FakeStep& step, const record::ModelInfo& model, std::size_t param, double factor) {
  step.detail.params[param].grad->norm *= factor;
  step.detail.params[param].grad->abs_max *= factor;
  auto& group = step.detail.groups[static_cast<std::size_t>(model.params[param].group)];
  group.grad_norm = *group.grad_norm * std::max(1.0, factor / 3);
}

/// Two hundred steps; the gradient of blocks.0.mlp.weight grows from 195 on, 201 has a NaN, three more follow.
std::shared_ptr<const Recording> a_failed_run(RecordedRun& run) {
  EXPECT_EQ(run.start(), ExportResult::ok);
  (void)run.recorder->set_run_state(RunState::running, "");
  run.steps(194);
  for (int i = 1; i <= 6; ++i) {
    run.training.next();
    grow(run.training.current(), *run.model, 3, std::pow(4.0, i));
    (void)run.recorder->export_step(run.training.current().record, run.training.current().detail,
                                    *run.model);
  }
  record::Incident incident = run.bad_step();
  (void)run.recorder->export_incident(incident);
  auto& step = run.training.next();
  run.training.poison_loss(std::numeric_limits<double>::quiet_NaN());
  step = run.training.current();
  (void)run.recorder->export_step(step.record, step.detail, *run.model);
  incident.last_step = 202;
  incident.steps = 2;
  incident.order.push_back({record::Site::loss, 202,
                            record::FirstNonfinite{record::Site::loss, {}, -1, -1}, "",
                            record::NonfiniteCounts{1, 0, 0}});
  (void)run.recorder->export_incident(incident);
  run.steps(2);
  (void)run.recorder->set_run_state(RunState::failed, "ValueError: loss is nan");
  EXPECT_EQ(run.finish(), ExportResult::ok);
  return recording_in(run.recorder->last_file());
}

TEST(Story, OfAFailedRunIsTheGoldenText) {
  RecordedRun run;
  const std::string text = text_of(story_of(*a_failed_run(run)));
  EXPECT_EQ(text, golden("story.txt", text));
}

TEST(Story, SaysTheSameToPrograms) {
  RecordedRun run;
  const auto json = to_json(story_of(*a_failed_run(run)));
  EXPECT_EQ(json["fault_step"], 201);
  EXPECT_EQ(json["normal"]["last_step"], 200);
  EXPECT_EQ(json["moved"][0]["run_step"], 195);
  EXPECT_EQ(json["moved"][0]["param"], "blocks.0.mlp.weight");
  EXPECT_EQ(json["incident"]["began_in"], "backward");
  EXPECT_EQ(json["after"]["steps"], 3);
  EXPECT_EQ(json["after"]["nonfinite"], 1);
  EXPECT_EQ(json["ending"]["how"], "failed");
  EXPECT_EQ(json["ending"]["reason"], "ValueError: loss is nan");
  EXPECT_FALSE(json.dump().empty());
}

/// Steps of one optimizer at which the weights were read: true where they were finite.
Recording with_weight_reads(const std::map<std::int64_t, bool>& reads, std::int64_t steps) {
  Recording recording;
  const auto model = std::make_shared<const record::ModelInfo>();
  for (std::int64_t s = 1; s <= steps; ++s) {
    RecordedStep step{.record = {}, .model = model, .sequence = 0, .detail = {}};
    step.record.step = step.record.run_step = s;
    if (const auto read = reads.find(s); read != reads.end()) {
      step.record.site_measured[index_of(record::Site::weight)] = true;
      if (!read->second) {
        step.record.nonfinite[index_of(record::Site::weight)] = {1, 0, 0};
        step.record.first_nonfinite = record::FirstNonfinite{record::Site::weight, {}, 0, 3};
      }
    }
    recording.steps.push_back(step);
  }
  return recording;
}

TEST(Story, SaysOfWeightsWhatTheirReadsTellAndNoMore) {
  record::Incident incident;
  incident.kind = record::IncidentClass::nonfinite_loss;
  incident.first_step = 81;
  struct Case {
    std::map<std::int64_t, bool> reads;
    const char* said;
  };
  const Case cases[] = {
      {{{50, true}, {100, false}},
       "found not finite at step 100, and were last read, and finite, at step 50: a checkpoint "
       "from after step 50 may be of no use."},
      {{{99, true}, {100, false}, {101, false}},
       "became not finite at step 100: a checkpoint from then on is of no use."},
      {{{100, false}}, "found not finite at step 100, and no read before it is known"},
      {{{50, true}, {83, true}}, "The weights were finite at step 83, when they were last read."},
      {{{50, true}}, "last read, and finite, at step 50: a checkpoint from after that may be"},
      {{}, "The weights were not read: whether a checkpoint is of use is not known."},
  };
  for (const Case& one : cases) {
    Recording recording = with_weight_reads(one.reads, 110);
    recording.incidents.push_back(incident);
    EXPECT_THAT(text_of(story_of(recording)), HasSubstr(one.said));
  }
}

TEST(Story, TakesTheDateOfBadWeightsFromTheIncidentWhereItsStepsAreGone) {
  Recording recording = with_weight_reads({{200, false}}, 210);
  record::Incident incident;
  incident.kind = record::IncidentClass::nonfinite_weight;
  incident.first_step = 100;
  incident.order.push_back({.site = record::Site::weight,
                            .run_step = 100,
                            .first = std::nullopt,
                            .param = "",
                            .counts = {},
                            .last_finite = 50});
  recording.incidents.push_back(incident);
  const Story story = story_of(recording);
  EXPECT_EQ(story.weights.found_bad, 100);
  EXPECT_EQ(story.weights.last_finite, 50);
}

TEST(Story, OfAKilledRunSaysThatNobodySawItEnd) {
  RecordedRun run({.directory = {}, .disk_bytes = 1 << 20});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(20);
  const auto story = story_of(*recording_in(run.ring()));
  EXPECT_EQ(story.ending, Ending::abrupt);
  EXPECT_THAT(text_of(story), HasSubstr("ends abruptly after step 20: the process was killed or "
                                        "the machine died"));
  EXPECT_THAT(text_of(story), HasSubstr("Nothing that the recording knows of."));
}

TEST(Story, OfAFileThatWasWrittenInTheMiddleDoesNotKnowTheEnd) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(20);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  const auto story = story_of(*recording_in(run.recorder->last_file()));
  EXPECT_EQ(story.ending, Ending::went_on);
  EXPECT_THAT(text_of(story), HasSubstr("written after step 21 (incident 1 opened); how the run "
                                        "ended is not in it."));
}

TEST(Story, OfARunThatFinishedSaysSo) {
  RecordedRun run({.directory = {}, .disk_bytes = 1 << 20});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(20);
  // A ring that tells of an incident stays at the end of a run.
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  ASSERT_EQ(run.recorder->set_run_state(RunState::finished, ""), ExportResult::ok);
  ASSERT_EQ(run.finish(), ExportResult::ok);
  EXPECT_THAT(text_of(story_of(*recording_in(run.ring()))),
              HasSubstr("The run finished after step 21."));
}

TEST(Story, FindsABadStepThatNoIncidentWasOpenedFor) {
  RecordedRun run({.directory = {}, .disk_bytes = 1 << 20});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(20);
  (void)run.bad_step();  // killed before anybody judged it
  const auto story = story_of(*recording_in(run.ring()));
  EXPECT_EQ(story.fault, 21);
  EXPECT_THAT(text_of(story),
              HasSubstr("step 21: NaN in the gradient of blocks.0.mlp.weight, element 7"));
}

TEST(Story, PutsWhatIsNotFiniteBeforeEverythingElse) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(10);
  record::Incident budget;
  budget.id = 1;
  budget.kind = record::IncidentClass::sync_budget;
  budget.first_step = budget.last_step = 10;
  budget.evidence = "9 host syncs, and 8 are allowed";
  ASSERT_EQ(run.recorder->export_incident(budget), ExportResult::ok);
  run.steps(10);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step(2)), ExportResult::ok);
  ASSERT_EQ(run.finish(), ExportResult::ok);
  const auto story = story_of(*recording_in(run.recorder->last_file()));
  EXPECT_EQ(story.broke->id, 2);
  EXPECT_EQ(story.fault, 21);
  EXPECT_THAT(text_of(story), HasSubstr("also, step 10: 9 host syncs, and 8 are allowed"));
}

TEST(Story, PutsTheGravestClassFirstWhicheverOpenedFirst) {
  Recording recording;
  const auto broke_after = [&](record::IncidentClass kind) {
    record::Incident incident;
    incident.id = std::ssize(recording.incidents) + 1;
    incident.kind = kind;
    incident.first_step = 10 * incident.id;
    recording.incidents.push_back(incident);
    return story_of(recording).broke->kind;
  };
  using enum record::IncidentClass;
  EXPECT_EQ(broke_after(grad_health), grad_health);
  EXPECT_EQ(broke_after(stalled), stalled) << "a low score harms nothing";
  EXPECT_EQ(broke_after(agent_cost), stalled);
  EXPECT_EQ(broke_after(loss_divergence), loss_divergence);
  EXPECT_EQ(broke_after(nonfinite_weight), nonfinite_weight);
  EXPECT_EQ(broke_after(loss_spike), nonfinite_weight);
  EXPECT_THAT(text_of(story_of(recording)), HasSubstr("also, step 60: Loss spike"));
}

TEST(Story, SaysNothingOfNumbersThatStayWhereTheyAre) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(200);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  EXPECT_THAT(story_of(*recording_in(run.recorder->last_file())).moved, testing::IsEmpty());
}

TEST(Story, SaysWhatATraceFound) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(3);
  record::Incident incident = run.bad_step();
  const auto told = [&](record::TracedModule module) {
    Story story;
    incident.module = std::move(module);
    story.broke = incident;
    return text_of(story);
  };
  EXPECT_THAT(told({.name = "blocks.0.mlp", .type = "Linear", .run_step = 4, .micro_step = 2}),
              HasSubstr("Traced at step 4, micro-step 2: the first module with a bad output is "
                        "blocks.0.mlp (Linear)\n"));
  EXPECT_THAT(told({.name = "", .type = "GPT", .run_step = 4, .at = record::TracedAt::input}),
              HasSubstr("the model itself (GPT) was given bad values that no module had made"));
  EXPECT_THAT(told({.name = "", .type = "", .is_backward = true, .at = record::TracedAt::loss}),
              HasSubstr("the gradient of the loss was bad"));
}

TEST(Story, LetsNoTerminalObeyNames) {
  RecordedRun run;
  run.run.run =
      "evil\x1b[2J \xC2\x9B"
      "2J \xE2\x80\xAEtxt.exe";  // C1's CSI, right to left
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(2);
  ASSERT_EQ(run.recorder->write_now("exit"), ExportResult::ok);
  const std::string text = text_of(story_of(*recording_in(run.recorder->last_file())));
  EXPECT_THAT(text, HasSubstr("evil?[2J ?2J ?txt.exe"));
  EXPECT_THAT(text, Not(HasSubstr("\xC2\x9B")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Story, StepsAtTheEndsOfTheNumbersAreCountedAsFarAsNumbersGo) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  Recording recording;
  for (const std::int64_t step : {-kMost, kMost}) {
    RecordedStep one;
    one.record.run_step = step;
    one.model = std::make_shared<const record::ModelInfo>();
    recording.steps.push_back(one);
  }
  EXPECT_EQ(story_of(recording).missing, kMost - 2);
}

TEST(Story, OfNothingSaysThatThereIsNothing) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  ASSERT_EQ(run.recorder->write_now("exit"), ExportResult::ok);
  EXPECT_THAT(text_of(story_of(*recording_in(run.recorder->last_file()))),
              HasSubstr("No step is in the recording."));
}

TEST(Story, CountsAreOfAllParametersOfWhichOneIsNamed) {
  Story story;
  record::Incident incident;
  incident.first_step = 60;
  incident.evidence = "Step 60: the loss was finite: it began in the backward pass.";
  incident.began_in = record::BeganIn::backward;
  incident.order = {{.site = record::Site::weight,
                     .run_step = 61,
                     .first = record::FirstNonfinite{record::Site::weight, {}, 0, 7},
                     .param = "a.weight",
                     .counts = {529, 0, 2},
                     .last_finite = 50},
                    {.site = record::Site::loss,
                     .run_step = 61,
                     .first = record::FirstNonfinite{record::Site::loss, {}, -1, 0},
                     .param = "",
                     .counts = {1, 0, 0},
                     .last_finite = 60}};
  story.broke = incident;
  const std::string text = text_of(story);
  EXPECT_THAT(text,
              HasSubstr("step 61: 529 NaN, 2 -Inf in the weights, first in a.weight, element 7\n"));
  EXPECT_THAT(text, HasSubstr("step 61: 1 NaN in the loss\n"));
  EXPECT_THAT(text, Not(HasSubstr("It began in"))) << "the sentence before says so";
}

}  // namespace
}  // namespace gradvane::exporters::recording
