#include "exporters/files/live_runs.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "exporters/api/endpoint_file.hpp"
#include "exporters/files/run_directory.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::Scratch;

record::RunInfo run_of(const std::string& name, const std::string& id, int rank) {
  record::RunInfo run = fakes::fake_run();
  run.run = name;
  run.run_id = id;
  run.rank = rank;
  run.pid = ::getpid();
  return run;
}

/// Number of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return child;
}

/// A process with its lock and its endpoint file, until the end of the block.
class Live {
 public:
  Live(const std::filesystem::path& path, const record::RunInfo& run, bool has_file = true)
      : directory_(std::make_shared<RunDirectory>(
            RunDirectoryOptions{.named = path,
                                .run = run.run,
                                .lock_name = "rank" + std::to_string(run.rank) + ".lock"})) {
    if (!has_file) return;
    EXPECT_EQ(EndpointFile(directory_, run).write("http://x", record::RunState::running), "");
  }

 private:
  std::shared_ptr<RunDirectory> directory_;
};

constexpr bool kShared = true;

bool is_taken(const std::filesystem::path& named, const record::RunInfo& run, bool has_shared_id) {
  return holder_of_name(named, run, has_shared_id).has_value();
}

TEST(LiveRuns, ARankOfTheSameNameInAnotherRunTakesTheName) {
  const Scratch scratch;
  EXPECT_FALSE(is_taken(scratch.path(), run_of("train", "b", 0), !kShared));
  const Live other(scratch.path(), run_of("train", "a", 0));
  EXPECT_TRUE(is_taken(scratch.path(), run_of("train", "b", 0), !kShared));
  EXPECT_TRUE(is_taken(scratch.path(), run_of("train", "b", 0), kShared));
  EXPECT_EQ(holder_of_name(scratch.path(), run_of("train", "a", 0), kShared), "a")
      << "one step of Slurm may start several programs: the caller decides";
  EXPECT_FALSE(is_taken(scratch.path(), run_of("eval", "b", 0), !kShared));
}

TEST(LiveRuns, OtherRanksAreOtherRunsOnlyIfTheIdsAreSharedByAllRanks) {
  const Scratch scratch;
  const Live other(scratch.path(), run_of("train", "a", 0));
  EXPECT_FALSE(is_taken(scratch.path(), run_of("train", "b", 1), !kShared))
      << "ranks without a launcher each have an id";
  EXPECT_TRUE(is_taken(scratch.path(), run_of("train", "b", 1), kShared));
  EXPECT_FALSE(is_taken(scratch.path(), run_of("train", "a", 1), kShared));
}

TEST(LiveRuns, AProcessThatHasNoFileYetTakesTheNameOfItsRank) {
  const Scratch scratch;
  const Live starting(scratch.path(), run_of("train", "a", 0), /*has_file=*/false);
  EXPECT_EQ(holder_of_name(scratch.path(), run_of("train", "b", 0), kShared), "");
  EXPECT_FALSE(is_taken(scratch.path(), run_of("train", "b", 1), kShared));
}

TEST(LiveRuns, WhatADeadProcessLeftTakesNoName) {
  const Scratch scratch;
  {
    const Live other(scratch.path(), run_of("train", "a", 0));
  }
  ASSERT_TRUE(std::filesystem::exists(scratch.path() / "endpoint.rank0.json"));
  EXPECT_FALSE(is_taken(scratch.path(), run_of("train", "b", 0), kShared));
  std::ofstream(scratch.path() / "rank0.lock") << "";  // as a killed process leaves it
  EXPECT_FALSE(is_taken(scratch.path(), run_of("train", "b", 0), kShared));
}

/// The ranks that torchrun starts in place of those that failed come one by one.
TEST(LiveRuns, ARankThatHasItsLockAndStillTheFileOfTheOneBeforeIsNoOtherRun) {
  const Scratch scratch;
  auto before = run_of("train", "a", 1);
  before.pid = dead_process();
  const Live starting(scratch.path(), before);
  EXPECT_FALSE(is_taken(scratch.path(), run_of("train", "a-restart1", 0), kShared));
  EXPECT_EQ(holder_of_name(scratch.path(), run_of("train", "b", 1), kShared), "")
      << "its own rank is taken all the same";

  auto elsewhere = run_of("train", "a-restart1", 0);
  elsewhere.host = "another-machine";  // where that number says nothing
  EXPECT_EQ(holder_of_name(scratch.path(), elsewhere, kShared), "a");
}

TEST(LiveRuns, LookingTakesNoLockAndWaitsForNothing) {
  const Scratch scratch;
  ASSERT_FALSE(is_taken(scratch.path(), run_of("train", "b", 0), kShared));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  ASSERT_EQ(::mkfifo((scratch.path() / "rank0.lock").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", scratch.path() / "rank1.lock");
  std::ofstream(scratch.path() / "rank2.lock") << "";
  std::ofstream(scratch.path() / "endpoint.rank2.json") << "{\"run\": [";
  EXPECT_FALSE(is_taken(scratch.path(), run_of("train", "b", 2), kShared));
  EXPECT_FALSE(is_taken(scratch.path() / "none", run_of("train", "b", 0), kShared));
}

TEST(LiveRuns, TheDefaultDirectoryIsLookedInIfNoneIsNamed) {
  const Scratch scratch;
  ASSERT_EQ(::setenv("TMPDIR", scratch.path().c_str(), 1), 0);
  EXPECT_FALSE(is_taken({}, run_of("train", "b", 0), !kShared));
  const Live other({}, run_of("train", "a", 0));
  EXPECT_TRUE(is_taken({}, run_of("train", "b", 0), !kShared));
  ASSERT_EQ(::unsetenv("TMPDIR"), 0);
}

}  // namespace
}  // namespace gradvane::exporters
