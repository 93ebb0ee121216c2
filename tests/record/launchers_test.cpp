#include "record/run/launchers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace gradvane::record {
namespace {

using testing::MatchesRegex;
using testing::StartsWith;
using Variables = std::map<std::string, std::string>;

Environment with(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

/// rank/local rank/world size, a dash for what is not given.
std::string numbers(const Variables& variables) {
  std::string text;
  for (const RankNumber number :
       {RankNumber::rank, RankNumber::local_rank, RankNumber::world_size}) {
    const auto found = launcher_number(number, with(variables));
    text += (text.empty() ? "" : "/") + (found ? found->text : "-");
  }
  return text;
}

const Variables kTorchrun = {{"RANK", "5"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "8"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_SIZE", "6"}};
const Variables kHydra = {{"PMI_RANK", "2"}, {"MPI_LOCALRANKID", "1"}, {"PMI_SIZE", "4"}};
const Variables kSrun = {{"SLURM_JOB_ID", "1234"},       {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "7"},          {"SLURM_LOCALID", "3"},
                         {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_NTASKS", "64"}};

Variables both(Variables one, const Variables& other) {
  one.insert(other.begin(), other.end());
  return one;
}

Variables changed(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(Launchers, EachLauncherGivesRankLocalRankAndWorldSize) {
  EXPECT_EQ(numbers({}), "-/-/-");
  EXPECT_EQ(numbers(kTorchrun), "5/1/8");
  EXPECT_EQ(numbers(kOpenMpi), "3/0/6");
  EXPECT_EQ(numbers(kHydra), "2/1/4");
  EXPECT_EQ(numbers(kSrun), "7/3/16");
  Variables older = kSrun;
  older.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(numbers(older), "7/3/64");
  EXPECT_EQ(numbers({{"JOB_COMPLETION_INDEX", "2"}}), "2/-/-");
}

TEST(Launchers, TheNearestLauncherCounts) {
  EXPECT_EQ(numbers(both(kTorchrun, kSrun)), "5/1/8") << "srun starts torchrun on each node";
  EXPECT_EQ(numbers(both(kOpenMpi, kSrun)), "3/0/6") << "mpirun starts a helper with srun";
  EXPECT_EQ(numbers(both(kHydra, kSrun)), "2/1/4");
  EXPECT_EQ(numbers(both(kTorchrun, {{"JOB_COMPLETION_INDEX", "2"}})), "5/1/8")
      << "a pod has several ranks";
  EXPECT_EQ(numbers(both({{"WORLD_SIZE", "16"}}, kSrun)), "7/3/16");
}

TEST(Launchers, ABatchScriptAndAnInteractiveShellOfSlurmAreNoTasks) {
  Variables script = kSrun;
  script.erase("SLURM_STEP_ID");
  EXPECT_EQ(numbers(script), "-/-/-");
  for (const char* step : {"4294967290", "4294967291", "", "none", "-1"})
    EXPECT_EQ(numbers(changed(kSrun, "SLURM_STEP_ID", step)), "-/-/-") << step;
}

TEST(Launchers, TheRunIsCalledAfterTorchrunsIdOrSlurmsStep) {
  const auto id = [](const Variables& variables) { return launcher_run_id(with(variables)); };
  EXPECT_EQ(id({}), "");
  EXPECT_EQ(id(kTorchrun), "");
  EXPECT_EQ(id({{"TORCHELASTIC_RUN_ID", "abc"}}), "abc");
  EXPECT_EQ(id(kSrun), "1234.0");
  EXPECT_EQ(id(changed(kSrun, "SLURM_STEP_ID", "3")), "1234.3");
  EXPECT_EQ(id(both({{"TORCHELASTIC_RUN_ID", "abc"}}, kSrun)), "abc");
  EXPECT_EQ(id(both({{"TORCHELASTIC_RUN_ID", "none"}}, kSrun)), "1234.0");
  EXPECT_EQ(id({{"SLURM_JOB_ID", "1234"}}), "") << "a batch script may start many runs";
  EXPECT_EQ(id({{"PMIX_NAMESPACE", "prterun-node7-99@1"}}), "prterun-node7-99@1");
}

TEST(Launchers, ARestartIsAnotherRun) {
  const auto id = [](const Variables& variables) { return launcher_run_id(with(variables)); };
  const Variables torchrun = {{"TORCHELASTIC_RUN_ID", "abc"}};
  EXPECT_EQ(id(changed(torchrun, "TORCHELASTIC_RESTART_COUNT", "0")), "abc");
  EXPECT_EQ(id(changed(torchrun, "TORCHELASTIC_RESTART_COUNT", "2")), "abc-restart2");
  EXPECT_EQ(id(changed(kSrun, "SLURM_RESTART_COUNT", "1")), "1234.0-restart1");
}

TEST(Launchers, TorchrunWithoutAnIdIsKnownByItsProcessOnOneNodeOnly) {
  const Variables torchrun = {{"TORCHELASTIC_RUN_ID", "none"}, {"GROUP_WORLD_SIZE", "1"}};
  EXPECT_EQ(launcher_run_id(with(torchrun)), "") << "the ranks may have different parents";
  const std::string ours = parent_run_id(with(torchrun));
  EXPECT_THAT(ours, MatchesRegex("torchrun-" + std::to_string(::getppid()) + "-[0-9]+"));
  EXPECT_EQ(parent_run_id(with(changed(torchrun, "TORCHELASTIC_RESTART_COUNT", "1"))),
            ours + "-restart1");
  EXPECT_EQ(parent_run_id(with(changed(torchrun, "GROUP_WORLD_SIZE", "2"))), "");
  EXPECT_EQ(parent_run_id(with({{"GROUP_WORLD_SIZE", "1"}})), "");
  // A child of this process has another parent, so it is another run.
  const pid_t child = ::fork();
  if (child == 0) ::_exit(parent_run_id(with(torchrun)) == ours ? 1 : 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Launchers, ARunThatNobodyNamedIsKnownByItsParentAndElseGetsANewId) {
  const Variables torchrun = {{"TORCHELASTIC_RUN_ID", "none"}, {"GROUP_WORLD_SIZE", "1"}};
  EXPECT_EQ(unnamed_run_id(1700000000, with(torchrun)), parent_run_id(with(torchrun)));
  EXPECT_THAT(unnamed_run_id(1700000000, with({})), StartsWith("20231114T221320-"));
}

TEST(Launchers, ANewIdHasTheTimeInUtcAndIsNeverTheSameTwice) {
  EXPECT_THAT(new_run_id(1700000000.75),
              MatchesRegex("20231114T221320-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]"));
  EXPECT_THAT(new_run_id(0), StartsWith("19700101T000000-"));
  std::vector<std::string> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(new_run_id(0));
  EXPECT_NE(std::count(ids.begin(), ids.end(), ids.front()), 8);
}

}  // namespace
}  // namespace gradvane::record
