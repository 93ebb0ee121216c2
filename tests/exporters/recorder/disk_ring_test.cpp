#include "exporters/recorder/disk_ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <random>

#include "exporters/recording/deflate.hpp"
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
using record::RunState;

/// State frames are the smallest: each says which step it is.
struct Written {
  std::uint64_t begin;
  std::uint64_t end;
  std::int64_t step;
};

TEST(DiskRing, HoldsExactlyTheFramesThatWereNotOverwritten) {
  constexpr std::uint64_t kSize = 4096;
  fakes::Scratch scratch;
  for (int count = 1; count < 300; count += 7) {
    DiskRing ring(claimed(scratch.path()), "ring.gvrec", {.ring_size = kSize});
    ASSERT_TRUE(ring.open());
    FrameMaker maker;
    std::vector<Written> all;
    std::mt19937 random(static_cast<unsigned>(count));
    for (int i = 1; i <= count; ++i) {
      std::string frame;
      const StateFrame state{.reason = std::string(random() % 300, static_cast<char>(random())),
                             .run_step = i};
      maker.append(frame, FrameType::state, state);
      const std::uint64_t begin = ring.written();
      ASSERT_TRUE(ring.append(frame));
      all.push_back({begin, ring.written(), i});
    }
    std::vector<std::int64_t> expected;
    for (const Written& one : all)
      if (one.begin + kSize >= ring.written()) expected.push_back(one.step);
    std::vector<std::int64_t> found;
    const auto read = recording_in(ring.path());
    for (const StateFrame& state : read->states) found.push_back(state.run_step);
    ASSERT_EQ(found, expected) << count << " frames";
    ASSERT_EQ(file_size(ring.path()), kFileHeaderSize + kSize);
  }
}

TEST(DiskRing, RefusesWhatIsTooLargeAndKeepsWhatItHas) {
  fakes::Scratch scratch;
  DiskRing ring(claimed(scratch.path()), "ring.gvrec", {.ring_size = 4096});
  ASSERT_TRUE(ring.open());
  EXPECT_FALSE(ring.append(std::string(1025, 'x')));
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_TRUE(ring.is_open());
  EXPECT_TRUE(ring.append(std::string(1024, 'x')));
}

TEST(DiskRing, KeepsTheRingOfTheRunBefore) {
  fakes::Scratch scratch;
  const auto path = scratch.path() / "ring.gvrec";
  std::ofstream(path) << "of yesterday";
  DiskRing ring(claimed(scratch.path()), "ring.gvrec", {.ring_size = 4096});
  ASSERT_TRUE(ring.open());
  std::string text;
  std::getline(std::ifstream(DiskRing::previous_path(path)), text);
  EXPECT_EQ(text, "of yesterday");
  ASSERT_TRUE(ring.open());  // its own is no run before
  std::getline(std::ifstream(DiskRing::previous_path(path)), text);
  EXPECT_EQ(text, "of yesterday");
}

TEST(FlightRecorderRing, HasTheLastStepsWithTheirModelHoweverOftenItWentRound) {
  RecordedRun run({.directory = {}, .disk_bytes = 64 << 10});
  ASSERT_EQ(run.start(), ExportResult::ok);
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(run.steps(17), ExportResult::ok);
    const auto read = recording_in(run.ring());
    const auto steps = run_steps(*read);
    ASSERT_EQ(steps, from_to(steps.front(), 17 * (i + 1)));
    ASSERT_TRUE(read->run);
    for (const auto& step : read->steps) ASSERT_EQ(text_of(*step.model), text_of(*run.model));
    ASSERT_EQ(text_of(read->detail(read->steps.back())), text_of(run.training.current().detail));
    ASSERT_FALSE(read->end);
    ASSERT_FALSE(read->damage.any());
  }
  EXPECT_GT(run_steps(*recording_in(run.ring())).front(), 900) << "or it went round nowhere";
}

TEST(FlightRecorderRing, KeepsAModelAsLongAsAStepOfIt) {
  RecordedRun run({.directory = {}, .steps = 3, .disk_bytes = 64 << 10});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(40);
  auto model = std::make_shared<record::ModelInfo>(*fakes::fake_model(3));
  model->id = 2;
  ASSERT_EQ(run.recorder->set_model(model), ExportResult::ok);
  fakes::FakeTraining training(model);
  for (int i = 0; i < 200; ++i) {
    const auto& [record, detail] = training.next();
    ASSERT_EQ(run.recorder->export_step(record, detail, *model), ExportResult::ok);
    const auto read = recording_in(run.ring());
    for (const auto& step : read->steps)
      ASSERT_EQ(step.model->params.size(), step.model->id == 2 ? 13U : 9U) << i;
  }
}

TEST(FlightRecorderRing, EndsWithTheRun) {
  RecordedRun run({.directory = {}, .disk_bytes = 64 << 10});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(3);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  ASSERT_EQ(run.recorder->export_syncs(std::make_shared<record::SyncSummary>(fakes::fake_syncs(4))),
            ExportResult::ok);
  ASSERT_EQ(run.recorder->set_run_state(RunState::failed, "exit with status 1"), ExportResult::ok);
  ASSERT_EQ(run.finish(), ExportResult::ok);
  const auto read = recording_in(run.ring());
  EXPECT_EQ(read->states.back().state, RunState::failed);
  EXPECT_TRUE(read->end && read->end->run_is_over);
  EXPECT_EQ(read->incidents.size(), 1U);
  EXPECT_EQ(text_of(*read->syncs), text_of(fakes::fake_syncs(4)));
}

TEST(FlightRecorderRing, IsRemovedWhenTheRunHasFinished) {
  RecordedRun run({.directory = {}, .disk_bytes = 64 << 10});
  std::ofstream(DiskRing::previous_path(run.ring())) << "of a run before";
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(3);
  auto incident = run.bad_step();
  ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
  incident.closed_at = incident.opened_at + 1;
  ASSERT_EQ(run.recorder->export_incident(incident), ExportResult::ok);
  ASSERT_EQ(run.files().size(), 3U) << "or this shows nothing";
  ASSERT_EQ(run.recorder->set_run_state(RunState::finished, ""), ExportResult::ok);
  ASSERT_EQ(run.finish(), ExportResult::ok);
  EXPECT_THAT(run.files(), testing::ElementsAre("fake-gpt.rank0.step4.nonfinite_grad.gvrec"));
}

TEST(FlightRecorderRing, StaysWhereTheRunEndsAmidAnIncident) {
  RecordedRun run({.directory = {}, .disk_bytes = 64 << 10});
  ASSERT_EQ(run.start(), ExportResult::ok);
  ASSERT_EQ(run.recorder->export_incident(run.bad_step()), ExportResult::ok);
  ASSERT_EQ(run.recorder->set_run_state(RunState::finished, ""), ExportResult::ok);
  ASSERT_EQ(run.finish(), ExportResult::ok);
  EXPECT_TRUE(exists(run.ring()));
}

TEST(FlightRecorderRing, OfAnotherRunIsNotRemoved) {
  RecordedRun run({.directory = {}, .disk_bytes = 64 << 10});
  ASSERT_EQ(run.start(), ExportResult::ok);
  std::filesystem::remove(run.ring());
  std::ofstream(run.ring()) << "of another run";
  (void)run.recorder->set_run_state(RunState::finished, "");
  (void)run.finish();
  EXPECT_TRUE(exists(run.ring()) || exists(DiskRing::previous_path(run.ring())));
}

TEST(FlightRecorderRing, IsPrivateAndNeverFollowsALink) {
  RecordedRun run({.directory = {}, .disk_bytes = 64 << 10});
  const auto precious = run.scratch.path() / "precious";
  std::ofstream(precious) << "precious";
  std::filesystem::create_symlink(precious, run.ring());
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(3);
  EXPECT_EQ(std::filesystem::file_size(precious), 8U);
  EXPECT_FALSE(is_symlink(run.ring()));
  using std::filesystem::perms;
  EXPECT_EQ(status(run.ring()).permissions(), perms::owner_read | perms::owner_write);
}

TEST(FlightRecorderRing, IsSmallerAndTakesNoRoomInAdvanceWhereTheDiskIsMemory) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  std::string in_memory = "/dev/shm/gradvane-test-XXXXXX";
  if (::mkdtemp(in_memory.data()) == nullptr) GTEST_SKIP() << "/dev/shm cannot be written to";
  struct stat there{};
  {
    RecordedRun run(
        {.directory = claimed(in_memory), .disk_bytes = 8 << 20, .disk_bytes_in_memory = 1 << 20});
    ASSERT_EQ(run.start(), ExportResult::ok);
    run.steps(3);
    ASSERT_EQ(::stat(run.ring().c_str(), &there), 0);
    EXPECT_EQ(run_steps(*recording_in(run.ring())), from_to(1, 3));
  }
  std::filesystem::remove_all(in_memory);
  EXPECT_EQ(there.st_size, static_cast<off_t>(kFileHeaderSize + (1 << 20)));
  EXPECT_LT(there.st_blocks * 512, 256 << 10);
}

TEST(FlightRecorderRing, IsWholeAfterSigkillAtFullSpeed) {
  constexpr int kRounds = 12;
  for (int round = 0; round < kRounds; ++round) {
    fakes::Scratch scratch;
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      RecordedRun run({.directory = claimed(scratch.path()), .disk_bytes = 256 << 10}, 10);
      if (run.start() != ExportResult::ok) ::_exit(1);
      for (;;) {
        run.steps(1);
        // Says which step is with the kernel.
        const std::int64_t step = run.training.current().record.run_step;
        if (::write(pipe[1], &step, sizeof step) != sizeof step) ::_exit(1);
      }
    }
    ::close(pipe[1]);
    std::int64_t said = 0;
    const std::int64_t until = 200 + 37 * round;
    while (said < until && ::read(pipe[0], &said, sizeof said) == sizeof said) {
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (::read(pipe[0], &said, sizeof said) == sizeof said) {
    }
    ::close(pipe[0]);

    const auto read = recording_in(
        RingWriter::path(scratch.path(), fakes::fake_run().run, fakes::fake_run().rank));
    const auto steps = run_steps(*read);
    ASSERT_GE(steps.back(), said) << "a step that was written is missing";
    ASSERT_LE(steps.back(), said + 1);
    EXPECT_EQ(steps, from_to(steps.front(), steps.back())) << "and none between is";
    EXPECT_GT(steps.size(), 20U);
    EXPECT_FALSE(read->end);
    EXPECT_EQ(read->steps.front().model->params.size(), 41U);
  }
}

TEST(FlightRecorderRing, LosesATornFrameAndNoOther) {
  RecordedRun run({.directory = {}, .disk_bytes = 1 << 20});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(20);
  // The process dies in the middle of a write: the end of the last frames is what was there before.
  std::ifstream file(run.ring(), std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t last = text.find_last_not_of('\0');
  std::fill(text.begin() + static_cast<std::ptrdiff_t>(last) - 700,
            text.begin() + static_cast<std::ptrdiff_t>(last) + 1, '\0');
  const auto [read, error] = read_recording_bytes(text);
  ASSERT_TRUE(read) << error;
  const auto steps = run_steps(*read);
  EXPECT_EQ(steps, from_to(1, steps.back()));
  EXPECT_GE(steps.back(), 18);
}

// ---- disks --------------------------------------------------------------------------------------------

TEST(FlightRecorderRing, ComesBackWhenItsDirectoryWasRemoved) {
  fakes::Scratch scratch;
  RecordedRun run({.directory = claimed(scratch.path() / "run"),
                   .disk_bytes = 64 << 10,
                   .retry_after = std::chrono::milliseconds(0)});
  ASSERT_EQ(run.start(), ExportResult::ok);
  run.steps(5);
  std::filesystem::remove_all(run.directory);
  EXPECT_EQ(run.steps(1), ExportResult::failed);
  EXPECT_EQ(run.recorder->counts().ring_failures, 1);
  EXPECT_EQ(run.metrics->value(record::Metric::recordings_total, {"failed"}), 1);
  EXPECT_EQ(run.steps(4), ExportResult::ok);
  EXPECT_EQ(run_steps(*recording_in(run.ring())), from_to(1, 10)) << "memory had them all";
}

TEST(FlightRecorderRing, IsTriedAgainAfterAWhileAndNotWithEveryStep) {
  RecordedRun run({.directory = claimed("/proc/no/such/place"),
                   .disk_bytes = 64 << 10,
                   .retry_after = std::chrono::hours(1)});
  EXPECT_EQ(run.start(), ExportResult::failed);
  EXPECT_EQ(run.steps(100), ExportResult::ok);
  EXPECT_EQ(run.recorder->counts().ring_failures, 1);
  EXPECT_EQ(run.recorder->memory().steps().size(), 100U);
}

TEST(FlightRecorderRing, OutlivesALimitOnFileSizes) {
  fakes::Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{10'000, 10'000};
    ::signal(SIGXFSZ, SIG_DFL);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    RecordedRun run({.directory = claimed(scratch.path()), .disk_bytes = 64 << 10});
    const bool ok = run.start() == ExportResult::failed && run.steps(10) == ExportResult::ok;
    ::_exit(ok && run.files().empty() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "killed by signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/// On a file system of its own of 512 KiB. Returns the child's exit status; 77: none can be had here.
int on_a_small_disk(const std::function<bool(const std::filesystem::path&)>& body) {
  const fakes::Scratch scratch;
  const std::string group = "0 " + std::to_string(::getegid()) + " 1\n";
  const std::string user = "0 " + std::to_string(::geteuid()) + " 1\n";
  const pid_t child = ::fork();
  if (child == 0) {
    bool has_disk = ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    std::ofstream("/proc/self/uid_map") << user;  // nobody in particular may own no file
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/gid_map") << group;
    has_disk = has_disk && ::mount("tmpfs", scratch.path().c_str(), "tmpfs", 0, "size=512k") == 0;
    ::_exit(!has_disk ? 77 : body(scratch.path()) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(FlightRecorderRing, ThatDoesNotFitOnTheDiskIsNotMadeInPart) {
  const int status = on_a_small_disk([](const std::filesystem::path& disk) {
    std::ofstream(disk / "others") << std::string(1 << 20, 'x');
    RecordedRun run({.directory = claimed(disk), .disk_bytes = 1 << 20});
    const bool is_counted = run.start() == ExportResult::failed &&
                            run.files() == std::vector<std::string>{"others"} &&
                            run.recorder->counts().ring_failures == 1;
    std::filesystem::remove(disk / "others");
    return is_counted && run.steps(10) == ExportResult::ok &&
           run.recorder->write_now("exit") == ExportResult::ok;
  });
  if (status == 77) GTEST_SKIP() << "no file system of one's own can be mounted here";
  EXPECT_EQ(status, 0);
}

TEST(FlightRecorderRing, CountsAFullDiskOnceHoweverLongItLasts) {
  const int status = on_a_small_disk([](const std::filesystem::path& disk) {
    RecordedRun run({.directory = claimed(disk),
                     .disk_bytes = 256 << 10,
                     .retry_after = std::chrono::milliseconds(0)});
    if (run.start() != ExportResult::ok) return false;
    // In memory the ring has no room of its own: it takes what there is.
    std::ofstream(disk / "others") << std::string(1 << 20, 'x');
    int failures = 0;
    for (int i = 0; i < 500; ++i) failures += run.steps(1) == ExportResult::failed ? 1 : 0;
    const bool is_counted_once =
        failures == 1 && run.recorder->counts().ring_failures == 1 &&
        run.metrics->value(record::Metric::recordings_total, {"failed"}) == 1;
    // A file needs room that nobody has.
    const bool has_no_room = run.recorder->write_now("exit") == ExportResult::failed &&
                             run.recorder->counts().files_failed == 1;
    std::filesystem::remove(disk / "others");
    const bool comes_back =
        run.steps(3) == ExportResult::ok && run_steps(*recording_in(run.ring())).back() == 503;
    return is_counted_once && has_no_room && comes_back;
  });
  if (status == 77) GTEST_SKIP() << "no file system of one's own can be mounted here";
  EXPECT_EQ(status, 0);
}

TEST(FlightRecorderRing, HasItsPlaceOnTheDiskFromTheStart) {
  RecordedRun run({.directory = {}, .disk_bytes = 8 << 20});
  ASSERT_EQ(run.start(), ExportResult::ok);
  struct stat status{};
  ASSERT_EQ(::stat(run.ring().c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 8 << 20) << "a disk that runs full later takes nothing from it";
}

TEST(FlightRecorderRing, SaysThatItIsTooSmallForTheModel) {
  RecordedRun run({.directory = {}, .disk_bytes = 16 << 10}, 400);
  (void)run.start();
  EXPECT_GT(run.recorder->counts().ring_too_small, 0);
}

}  // namespace
}  // namespace gradvane::exporters::recording
