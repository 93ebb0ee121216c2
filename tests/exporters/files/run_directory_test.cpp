#include "exporters/files/run_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "exporters/files/file_word.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;
using fakes::Scratch;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class RunDirectoryTest : public testing::Test {
 public:
  RunDirectoryTest() { ::setenv("TMPDIR", base_.c_str(), 1); }
  ~RunDirectoryTest() override { ::unsetenv("TMPDIR"); }

 protected:
  static RunDirectoryOptions options(const fs::path& named = {}) {
    return {.named = named, .run = "train", .lock_name = "rank0.lock"};
  }
  [[nodiscard]] fs::path usual() const { return base_ / runs_of_user(::geteuid()) / "train"; }
  [[nodiscard]] std::string own() const { return "train." + std::to_string(::getpid()); }
  static bool writes(RunDirectory& directory) {
    const int descriptor = directory.use();
    return descriptor >= 0 && ::faccessat(descriptor, ".", W_OK, 0) == 0;
  }

  Scratch scratch_;
  fs::path base_ = scratch_.path();
};

TEST(DefaultRunDirectory, IsTheUsersOwnAndNamedAfterTheRun) {
  ::setenv("TMPDIR", "/somewhere", 1);
  const std::string base = "/somewhere/gradvane-" + std::to_string(::geteuid()) + "/";
  EXPECT_EQ(default_run_directory("gpt-2.small"), base + "gpt-2.small");
  EXPECT_EQ(default_run_directory("a/b c"), base + "a_b_c");
  EXPECT_EQ(default_run_directory(".."), base + "_..");
  EXPECT_EQ(default_run_directory(""), base + "_");
  ::unsetenv("TMPDIR");
  EXPECT_TRUE(default_run_directory("x").string().starts_with("/tmp/gradvane-"));
}

TEST_F(RunDirectoryTest, IsTheUsualOneForTheOnlyProcess) {
  for (int i = 0; i < 2; ++i) {  // the second run after the first has ended
    RunDirectory directory(options());
    EXPECT_EQ(directory.path(), usual());
    EXPECT_THAT(directory.note(), IsEmpty());
    EXPECT_TRUE(writes(directory));
  }
  EXPECT_THAT(fs::is_empty(usual()), true) << "nothing is left but the directory";
}

TEST_F(RunDirectoryTest, IsAnotherOneWhileAProcessOfTheSameNameAndRankRuns) {
  auto first = std::make_unique<RunDirectory>(options());
  RunDirectory second(options());
  RunDirectory third(options());
  EXPECT_EQ(second.path(), usual().parent_path() / own());
  EXPECT_THAT(second.note(), HasSubstr("another process uses " + usual().string()));
  EXPECT_EQ(third.path(), usual().parent_path() / (own() + "-2"));
  auto other_rank = options();
  other_rank.lock_name = "rank1.lock";
  EXPECT_EQ(RunDirectory(other_rank).path(), usual()) << "ranks share one";
  first.reset();
  EXPECT_EQ(RunDirectory(options()).path(), usual());
  second.release();
  EXPECT_FALSE(fs::exists(usual().parent_path() / own())) << "it was empty";
}

TEST_F(RunDirectoryTest, ThatTheUserNamedWithASlashAtItsEndIsWhatWasAskedForToo) {
  const fs::path named = base_ / "mine" / "";
  RunDirectory first(options(named));
  RunDirectory second(options(named));
  EXPECT_TRUE(first.is_as_named());
  EXPECT_TRUE(second.is_as_named()) << second.path();
  RunDirectory elsewhere(options("/proc/mine"));
  EXPECT_FALSE(elsewhere.is_as_named()) << elsewhere.path();
}

TEST_F(RunDirectoryTest, ThatTheUserNamedHoldsThoseOfOtherProcesses) {
  const fs::path named = base_ / "mine";
  RunDirectory first(options(named));
  EXPECT_EQ(first.path(), named);
  RunDirectory second(options(named));
  EXPECT_EQ(second.path(), named / own());
  std::ofstream(second.path() / "endpoint.rank0.json") << "{}";
  second.release();
  EXPECT_TRUE(fs::exists(named / own() / "endpoint.rank0.json")) << "files stay";
  EXPECT_EQ(second.use(), -1);
}

TEST_F(RunDirectoryTest, IsTheUsualOneAgainAfterAProcessWasKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto* directory = new RunDirectory(options());
    if (directory->path() != usual()) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(fs::exists(usual() / "rank0.lock"));
  EXPECT_EQ(RunDirectory(options()).path(), usual());
}

TEST_F(RunDirectoryTest, IsOfNoUseInAForkedChildWhichLeavesTheParentsAlone) {
  RunDirectory directory(options());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_closed = directory.use() == -1;
    directory.release();
    ::_exit(is_closed ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::exists(usual() / "rank0.lock"));
  EXPECT_NE(RunDirectory(options()).path(), usual());
}

TEST_F(RunDirectoryTest, WithoutFileLocksHasANameThatNoOtherProcessTakes) {
  auto without = options();
  without.lock = [](int) noexcept { return Locked::unsupported; };
  RunDirectory first(without);
  RunDirectory second(without);
  EXPECT_THAT(first.path().filename().string(), StartsWith(own() + '.'));
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(first.note(), HasSubstr("there are no file locks in " + usual().string()));
  EXPECT_TRUE(writes(first) && writes(second));
}

TEST_F(RunDirectoryTest, IsMadeAndClaimedAgainWhereItWasRemoved) {
  RunDirectory directory(options());
  fs::remove_all(usual().parent_path());
  EXPECT_TRUE(writes(directory));
  EXPECT_EQ(directory.path(), usual());
  EXPECT_NE(RunDirectory(options()).path(), usual()) << "with its lock";
  // Another process may have made it meanwhile.
  fs::remove_all(usual().parent_path());
  const RunDirectory other(options());
  EXPECT_TRUE(writes(directory));
  EXPECT_EQ(directory.path(), usual().parent_path() / own());
}

TEST_F(RunDirectoryTest, IsNotTheOneThatTookItsPlace) {
  RunDirectory directory(options());
  fs::rename(usual(), base_ / "moved");
  fs::create_directory(base_ / "precious");
  fs::create_directory_symlink(base_ / "precious", usual());
  EXPECT_TRUE(writes(directory));
  EXPECT_NE(directory.path(), usual());
  EXPECT_TRUE(fs::is_empty(base_ / "precious"));
  EXPECT_THAT(directory.note(), HasSubstr("is not a directory"));
}

TEST_F(RunDirectoryTest, DoesNotDependOnTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(base_);
  RunDirectory directory(options("named"));
  fs::current_path("/");
  EXPECT_TRUE(writes(directory));
  EXPECT_EQ(directory.path(), base_ / "named");
  fs::current_path(before);
}

// ---- directories that are not to be trusted ---------------------------------------------------------

TEST_F(RunDirectoryTest, HasARandomNameWhereAnotherUserMadeTheUsualOne) {
  fs::create_directory(usual().parent_path());
  ::chmod(usual().parent_path().c_str(), 0777);  // what another user does to be let in
  RunDirectory directory(options());
  EXPECT_THAT(directory.note(), HasSubstr("can be written to by other users"));
  EXPECT_THAT(directory.path().string(), StartsWith(usual().parent_path().string() + '.'));
  EXPECT_TRUE(writes(directory));
  EXPECT_EQ(fs::status(directory.path()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(directory.path().parent_path()).permissions(), fs::perms::owner_all);
  EXPECT_TRUE(fs::is_empty(usual().parent_path())) << "nothing was put there";
}

TEST_F(RunDirectoryTest, HasARandomNameWhereALinkHasTheUsualOne) {
  fs::create_directories(base_ / "precious");
  fs::create_directory(usual().parent_path());
  fs::permissions(usual().parent_path(), fs::perms::owner_all);
  fs::create_directory_symlink(base_ / "precious", usual());
  RunDirectory directory(options());
  EXPECT_NE(directory.path(), usual());
  EXPECT_TRUE(writes(directory));
  EXPECT_TRUE(fs::is_empty(base_ / "precious"));
}

TEST_F(RunDirectoryTest, IsNoneWhereNothingBelongsToTheUser) {
  auto other = options();
  other.owner = ::geteuid() + 1;
  RunDirectory directory(other);
  EXPECT_EQ(directory.use(), -1);
  EXPECT_EQ(directory.path(), "");
  EXPECT_THAT(directory.note(), HasSubstr("belongs to another user"));
}

TEST_F(RunDirectoryTest, GoesBelowATemporaryDirectoryThatIsThere) {
  ::setenv("TMPDIR", (base_ / "none").c_str(), 1);
  RunDirectory directory(options());
  EXPECT_THAT(directory.path().string(), StartsWith("/tmp/gradvane-"));
  EXPECT_THAT(directory.note(), HasSubstr("none: No such file"));
  const fs::path parent = directory.path().parent_path();
  directory.release();
  fs::remove(parent);
}

TEST_F(RunDirectoryTest, ThatTheUserNamedInAPublicPlaceIsAFolderOfOurOwn) {
  fs::create_directory(base_ / "public");
  ::chmod((base_ / "public").c_str(), 0777);
  RunDirectory directory(options(base_ / "public"));
  EXPECT_EQ(directory.path(), base_ / "public" / own());
  EXPECT_EQ(fs::status(directory.path()).permissions(), fs::perms::owner_all);
}

TEST_F(RunDirectoryTest, ThatTheUserNamedAndThatCannotBeMadeIsReplacedOnlyIfAsked) {
  auto wished = options("/proc/no/such/place");
  RunDirectory with(wished);
  EXPECT_THAT(with.path().string(), StartsWith(usual().parent_path().string() + '.'));
  wished.has_fallback = false;
  RunDirectory without(wished);
  EXPECT_EQ(without.use(), -1);
  EXPECT_THAT(without.note(), HasSubstr("/proc/no"));
}

TEST_F(RunDirectoryTest, IsBesideALockThatIsAPipe) {
  fs::create_directory(usual().parent_path());
  fs::create_directory(usual());
  fs::permissions(usual().parent_path(), fs::perms::owner_all);
  fs::permissions(usual(), fs::perms::owner_all);
  ASSERT_EQ(::mkfifo((usual() / "rank0.lock").c_str(), 0666), 0);
  EXPECT_EQ(RunDirectory(options()).path(), usual().parent_path() / own());
}

/// The real thing: a directory that another user made in advance, with a pipe in it.
TEST_F(RunDirectoryTest, OfOneUserIsNeverWhereAnotherUserCanReachIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  constexpr uid_t kAttacker = 65534;
  constexpr uid_t kVictim = 54321;
  ::chmod(base_.c_str(), 01777);
  const auto as = [](uid_t user, const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::setuid(user) == 0 && body() ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0;
  };
  const fs::path taken = base_ / runs_of_user(kVictim);
  ASSERT_TRUE(as(kAttacker, [&] {
    ::umask(0);
    return ::mkdir(taken.c_str(), 0777) == 0 && ::mkdir((taken / "train").c_str(), 0777) == 0 &&
           ::mkfifo((taken / "train" / "endpoint.rank0.json").c_str(), 0666) == 0;
  }));
  EXPECT_TRUE(as(kVictim, [&] {
    RunDirectory directory(options());
    struct stat status{};
    const bool is_elsewhere = directory.path().string().starts_with(taken.string() + '.') &&
                              directory.note().find("belongs to another user") != std::string::npos;
    return is_elsewhere && ::fstat(directory.use(), &status) == 0 && status.st_uid == kVictim &&
           (status.st_mode & 0777U) == 0700U;
  }));
  EXPECT_EQ(std::distance(fs::directory_iterator(taken / "train"), {}), 1) << "the pipe";
}

}  // namespace
}  // namespace gradvane::exporters
