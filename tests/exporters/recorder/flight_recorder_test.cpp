#include "exporters/recorder/flight_recorder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/exporters/recording/every_field.hpp"
#include "tests/exporters/recording/recorded_run.hpp"

namespace gradvane::exporters::recording {
namespace {

using fakes::claimed;
using fakes::from_to;
using fakes::RecordedRun;
using fakes::recording_in;
using fakes::run_steps;
using fakes::text_of;
using record::Metric;
using record::RunState;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kFile = "fake-gpt.rank0.step8.nonfinite_grad.gvrec";

TEST(FlightRecorder, WritesAFileWhenAnIncidentOpensWithTheBadStepAndThoseBefore) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(7);
  const auto incident = run.bad_step();
  EXPECT_THAT(run.files(), IsEmpty());
  ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
  ASSERT_THAT(run.files(), ElementsAre(kFile));
  EXPECT_EQ(run.recorder->last_file().filename(), kFile);
  EXPECT_EQ(run.metrics->value(Metric::recordings_total, {"ok"}), 1);

  const auto read = recording_in(run.directory / kFile);
  EXPECT_EQ(run_steps(*read), from_to(1, 8));
  EXPECT_EQ(text_of(*read->run), text_of(run.run));
  ASSERT_EQ(read->incidents.size(), 1U);
  EXPECT_EQ(text_of(read->incidents[0]), text_of(incident));
  EXPECT_FALSE(read->damage.any());
  ASSERT_TRUE(read->end);
  EXPECT_FALSE(read->end->run_is_over);
  const auto& bad = read->steps.back();
  EXPECT_EQ(text_of(bad.record), text_of(run.training.current().record));
  EXPECT_EQ(text_of(read->detail(bad)), text_of(run.training.current().detail));
  EXPECT_EQ(text_of(*bad.model), text_of(*run.model));
}

TEST(FlightRecorder, PutsTheStepsAfterAnIncidentIntoItsFile) {
  RecordedRun run({.directory = {}, .steps = 40});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(7);
  auto incident = run.bad_step();
  ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
  run.steps(1);
  incident.closed_at = incident.opened_at + 1;
  ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
  run.steps(9);
  EXPECT_EQ(recording_in(run.directory / kFile)->steps.size(), 8U)
      << "it is not over for long enough";
  run.steps(1);
  const auto read = recording_in(run.directory / kFile);
  EXPECT_EQ(run_steps(*read), from_to(1, 19));
  EXPECT_TRUE(read->incidents[0].closed_at);
  run.steps(30);
  EXPECT_EQ(recording_in(run.directory / kFile)->steps.size(), 19U) << "then it is complete";
}

TEST(FlightRecorder, LosesNoStepBetweenAnIncidentAndTheStepsAfterWhenMemoryIsShort) {
  RecordedRun run({.directory = {}, .steps = 10});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(7);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  run.steps(100);
  ASSERT_EQ(run.finish(), ExportResult::ok);
  auto expected = from_to(1, 13);  // memory holds ten: five after it are put in before it loses any
  std::ranges::copy(from_to(99, 108), std::back_inserter(expected));
  EXPECT_EQ(run_steps(*recording_in(run.directory / kFile)), expected);
}

TEST(FlightRecorder, SaysInItsFilesHowTheRunEnded) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  ASSERT_EQ(run.recorder->set_run_state(RunState::running, ""), ExportResult::ok);
  run.steps(7);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  run.steps(3);
  ASSERT_EQ(run.recorder->set_run_state(RunState::failed, "RuntimeError: no"), ExportResult::ok);
  ASSERT_EQ(run.finish(), ExportResult::ok);
  const auto read = recording_in(run.directory / kFile);
  EXPECT_EQ(run_steps(*read), from_to(1, 11));
  EXPECT_EQ(read->states.back().state, RunState::failed);
  EXPECT_EQ(read->states.back().reason, "RuntimeError: no");
  EXPECT_TRUE(read->end && read->end->run_is_over);
}

TEST(FlightRecorder, WaitsForTheStepOfAnIncidentThatComesBeforeIt) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(7);
  ASSERT_EQ(run.recorder->export_incident(fakes::fake_incident(1, 8)), ExportResult::ok);
  EXPECT_THAT(run.files(), IsEmpty());
  run.steps(1);
  EXPECT_EQ(run_steps(*recording_in(run.directory / kFile)), from_to(1, 8));
}

TEST(FlightRecorder, WritesWhatThereIsWhenItIsAskedTo) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(3);
  ASSERT_EQ(run.recorder->write_now("SIGTERM"), ExportResult::ok);
  const auto read = recording_in(run.directory / "fake-gpt.rank0.step3.SIGTERM.gvrec");
  EXPECT_EQ(run_steps(*read), from_to(1, 3));
  EXPECT_EQ(read->end->reason, "SIGTERM");
  run.steps(2);
  ASSERT_EQ(run.recorder->write_now("exit"), ExportResult::ok);
  EXPECT_EQ(run.files().size(), 1U) << "what is open is completed";
  EXPECT_EQ(run_steps(*recording_in(run.recorder->last_file())), from_to(1, 5));
}

TEST(FlightRecorder, PutsIncidentsThatComeTogetherIntoOneFile) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(7);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step(1)), ExportResult::ok);
  auto second = run.bad_step(2);
  second.kind = record::IncidentClass::nonfinite_weight;
  ASSERT_EQ(run.recorder->export_incident(second), ExportResult::ok);
  ASSERT_THAT(run.files(), ElementsAre(kFile));
  const auto read = recording_in(run.directory / kFile);
  EXPECT_EQ(run_steps(*read), from_to(1, 9));
  EXPECT_EQ(read->incidents.size(), 2U);
}

TEST(FlightRecorder, KeepsAsManyFilesAsItMayAndTheFirstOneAmongThem) {
  RecordedRun run({.directory = {}, .steps = 4, .kept = 3, .refill = std::chrono::milliseconds(0)});
  ASSERT_EQ(run.start(), ExportResult::ok);
  for (int i = 1; i <= 8; ++i) {
    run.steps(7);
    auto incident = run.bad_step(i);
    incident.closed_at = incident.opened_at;
    ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
    ASSERT_LE(run.files().size(), 3U);
    run.steps(4);
  }
  EXPECT_EQ(run.recorder->counts().files, 8);
  EXPECT_THAT(run.files(), ElementsAre(kFile, "fake-gpt.rank0.step80.nonfinite_grad.gvrec",
                                       "fake-gpt.rank0.step92.nonfinite_grad.gvrec"));
}

TEST(FlightRecorder, RemovesNoFileOfAnotherRunOrRank) {
  RecordedRun run({.directory = {}, .steps = 4, .kept = 1, .refill = std::chrono::milliseconds(0)});
  const std::vector<std::string> others{"fake-gpt.rank10.step1.nonfinite_grad.gvrec",
                                        "fake-gpt.rank0.step1.notes.txt",
                                        "other.rank0.step1.nonfinite_grad.gvrec"};
  for (const auto& name : others) std::ofstream(run.directory / name) << "mine";
  ASSERT_EQ(run.start(), ExportResult::ok);
  for (int i = 1; i <= 3; ++i) {
    run.steps(3);
    ASSERT_EQ(run.recorder->write_now("exit"), ExportResult::ok);
    run.steps(3);
  }
  for (const auto& name : others) EXPECT_TRUE(exists(run.directory / name)) << name;
  EXPECT_EQ(run.files().size(), 4U);
}

TEST(FlightRecorder, SparesTheDiskInAStormOfIncidents) {
  RecordedRun run({.directory = {}, .steps = 4, .kept = 3, .refill = std::chrono::hours(10)});
  ASSERT_EQ(run.start(), ExportResult::ok);
  for (int i = 1; i <= 200; ++i) {
    auto incident = run.bad_step(i);
    incident.closed_at = incident.opened_at;
    ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
    run.steps(4);
  }
  EXPECT_EQ(run.recorder->counts().files, 3);
  EXPECT_EQ(run.recorder->counts().files_spared, 197);
}

TEST(FlightRecorder, DoesNotReplaceTheFileOfAnEarlierProcess) {
  fakes::Scratch scratch;
  for (int process = 1; process <= 2; ++process) {
    RecordedRun run({.directory = claimed(scratch.path())});
    ASSERT_EQ(run.start(), ExportResult::ok);
    run.steps(7);
    ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
    EXPECT_EQ(run.files().size(), static_cast<std::size_t>(process));
  }
}

TEST(FlightRecorder, KeepsTheNewestOfItsFilesWhateverTheClockSays) {
  RecordedRun run({.directory = {}, .steps = 4, .kept = 3, .refill = std::chrono::milliseconds(0)});
  ASSERT_EQ(run.start(), ExportResult::ok);
  for (int i = 1; i <= 5; ++i) {
    run.steps(7);
    auto incident = run.bad_step(i);
    incident.closed_at = incident.opened_at;
    ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
    run.steps(4);
    // The clock is set back between any two of them.
    const auto then = std::filesystem::file_time_type::clock::now() - std::chrono::hours(i);
    std::filesystem::last_write_time(run.recorder->last_file(), then);
  }
  EXPECT_THAT(run.files(), ElementsAre("fake-gpt.rank0.step44.nonfinite_grad.gvrec",
                                       "fake-gpt.rank0.step56.nonfinite_grad.gvrec", kFile));
}

TEST(FlightRecorder, WritesNothingThroughALinkOrIntoAPipeAndNothingForOthersToRead) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  ASSERT_EQ(::mkfifo((run.directory / kFile).c_str(), 0666), 0);
  run.steps(7);
  auto incident = run.bad_step();
  ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
  EXPECT_EQ(run.recorder->last_file().filename(), "fake-gpt.rank0.step8.nonfinite_grad-2.gvrec");
  using std::filesystem::perms;
  EXPECT_EQ(status(run.recorder->last_file()).permissions(),
            perms::owner_read | perms::owner_write);
  // Its own file becomes a pipe: more frames for it are refused, and nothing waits.
  std::filesystem::remove(run.recorder->last_file());
  ASSERT_EQ(::mkfifo(run.recorder->last_file().c_str(), 0666), 0);
  EXPECT_EQ(run.recorder->write_now("exit"), ExportResult::failed);
}

TEST(FlightRecorder, WithoutADirectoryKeepsTheStepsAndFailsNothing) {
  FlightRecorder recorder({.directory = nullptr, .disk_bytes = 64 << 10}, nullptr);
  const auto model = fakes::fake_model();
  fakes::FakeTraining training(model);
  ASSERT_EQ(recorder.start(fakes::fake_run(), model), ExportResult::ok);
  for (int i = 0; i < 3; ++i) {
    const auto& [record, detail] = training.next();
    ASSERT_EQ(recorder.export_step(record, detail, *model), ExportResult::ok);
  }
  EXPECT_EQ(recorder.export_incident(fakes::fake_incident(1, 3)), ExportResult::ok);
  EXPECT_EQ(recorder.write_now("exit"), ExportResult::ok);
  EXPECT_EQ(recorder.finish(std::chrono::seconds(1)), ExportResult::ok);
  EXPECT_TRUE(recorder.last_file().empty());
}

TEST(FlightRecorder, MakesADirectoryThatNobodyElseLooksInto) {
  const fakes::Scratch scratch;
  RecordedRun run({.directory = claimed(scratch.path() / "a" / "b")});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(1);
  ASSERT_EQ(run.recorder->write_now("exit"), ExportResult::ok);
  EXPECT_EQ(status(scratch.path() / "a").permissions(), std::filesystem::perms::owner_all);
  EXPECT_EQ(status(run.directory).permissions(), std::filesystem::perms::owner_all);
}

// ---- memory ---------------------------------------------------------------------------------------

TEST(FlightRecorder, HoldsItsBoundWithTenThousandParameters) {
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  RecordedRun run({.directory = {}, .memory_bytes = kBytes}, 2500);
  ASSERT_EQ(run.model->params.size(), 10'001U);
  ASSERT_EQ(run.start(), ExportResult::ok);
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(run.steps(1), ExportResult::ok);
    ASSERT_LE(run.recorder->memory().bytes(), kBytes);
  }
  EXPECT_GT(run.recorder->memory().dropped(), 0) << "or this shows nothing";
  EXPECT_GT(run.recorder->memory().steps().size(), 3U);
  EXPECT_EQ(run.recorder->memory().steps().back().run_step, 60);
}

TEST(FlightRecorder, SaysThatAStepIsTooLargeForItsMemory) {
  RecordedRun run({.directory = {}, .memory_bytes = 400});
  ASSERT_EQ(run.start(), ExportResult::ok);
  EXPECT_EQ(run.steps(1), ExportResult::failed);
  EXPECT_EQ(run.recorder->counts().steps_too_large, 1);
}

TEST(FlightRecorder, KnowsTheModelsOfTheStepsItHoldsAndNoOthers) {
  RecordedRun run({.directory = {}, .steps = 5});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(5);
  for (int id = 2; id <= 40; ++id) {
    auto model = std::make_shared<record::ModelInfo>(*fakes::fake_model(id % 3 + 1));
    model->id = static_cast<std::uint64_t>(id);
    fakes::FakeTraining training(model);
    const auto& [record, detail] = training.next();
    ASSERT_EQ(run.recorder->export_step(record, detail, *model), ExportResult::ok);
  }
  ASSERT_EQ(run.recorder->write_now("exit"), ExportResult::ok);
  const auto read = recording_in(run.recorder->last_file());
  EXPECT_EQ(read->models.size(), 5U);
  for (const auto& step : read->steps)
    EXPECT_EQ(read->detail(step).params.size(), step.model->params.size());
}

// ---- what goes wrong on disks -----------------------------------------------------------------------

TEST(FlightRecorder, CountsAFileThatCannotBeWrittenAndGoesOn) {
  RecordedRun run({.directory = claimed("/proc/no/such/place")});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(3);
  EXPECT_EQ(run.recorder->export_incident(fakes::fake_incident(1, 3)), ExportResult::failed);
  EXPECT_EQ(run.recorder->counts().files_failed, 1);
  EXPECT_EQ(run.metrics->value(Metric::recordings_total, {"failed"}), 1);
  EXPECT_EQ(run.steps(3), ExportResult::ok);
}

/// In a child, since the limit is for good. SIGXFSZ kills it unless the recorder sees to that.
int exit_status_of(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool limit_file_size(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  return ::signal(SIGXFSZ, SIG_DFL) != SIG_ERR && ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

TEST(FlightRecorder, OutlivesALimitOnFileSizesAndLeavesNoPartOfAFile) {
  RecordedRun run;
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(50);
  const auto in_child = [&] {
    RecordedRun own({.directory = claimed(
                         run.directory, "child.lock")});  // the parent's would not write in a child
    bool ok = own.start() == ExportResult::ok && own.steps(50) == ExportResult::ok;
    ok = ok && limit_file_size(20'000);
    ok = ok && own.recorder->write_now("exit") == ExportResult::failed;
    ok = ok && own.recorder->counts().files_failed == 1;
    ok = ok && own.steps(5) == ExportResult::ok;
    sigset_t pending;
    return ok && sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 0;
  };
  EXPECT_EQ(exit_status_of(in_child), 0);
  EXPECT_THAT(run.files(), IsEmpty());
}

TEST(FlightRecorder, ALimitWithoutTheRecordersCareKills) {  // the control of the test above
  fakes::Scratch scratch;
  const auto in_child = [&] {
    if (!limit_file_size(10)) return true;
    const int file = ::open((scratch.path() / "file").c_str(), O_CREAT | O_WRONLY, 0600);
    return ::write(file, "0123456789", 10) == 10 && ::write(file, "0", 1) == 1;
  };
  EXPECT_EQ(exit_status_of(in_child), 1000 + SIGXFSZ);
}

TEST(FlightRecorder, LeavesAFileAsItWasWhenMoreDoesNotFit) {
  fakes::Scratch scratch;
  const auto in_child = [&] {
    RecordedRun own({.directory = claimed(scratch.path())});
    bool ok = own.start() == ExportResult::ok;
    own.steps(7);
    ok = ok && own.recorder->export_incident(own.bad_step()) == ExportResult::ok;
    const auto size = file_size(own.recorder->last_file());
    own.steps(50);
    ok = ok && limit_file_size(size + 1000) && own.finish() == ExportResult::failed;
    return ok && file_size(own.recorder->last_file()) == size;
  };
  EXPECT_EQ(exit_status_of(in_child), 0);
  EXPECT_EQ(run_steps(*recording_in(scratch.path() / kFile)), from_to(1, 8));
}

TEST(FlightRecorder, WritesNothingInAForkedChild) {
  RecordedRun run({.directory = {}, .disk_bytes = 1 << 20});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(3);
  const auto in_child = [&] {
    const bool is_closed =
        run.steps(5) == ExportResult::closed &&
        run.recorder->write_now("exit") == ExportResult::closed &&
        run.recorder->export_incident(fakes::fake_incident(1, 3)) == ExportResult::closed &&
        run.finish() == ExportResult::closed;
    run.recorder.reset();
    return is_closed;
  };
  EXPECT_EQ(exit_status_of(in_child), 0);
  EXPECT_EQ(run.files().size(), 1U) << "the ring";
  EXPECT_EQ(run_steps(*recording_in(run.ring())), from_to(1, 3));
  EXPECT_FALSE(recording_in(run.ring())->end) << "nobody ended the run";
}

}  // namespace
}  // namespace gradvane::exporters::recording
