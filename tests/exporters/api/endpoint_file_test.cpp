#include "exporters/api/endpoint_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/files/claimed.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::claimed;
using fakes::Scratch;
using nlohmann::json;
using record::RunState;
using testing::HasSubstr;

json read(const std::filesystem::path& path) { return json::parse(std::ifstream(path)); }

unsigned mode_of(const std::filesystem::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 0777U;
}

TEST(EndpointFile, SaysWhereTheEndpointIsAndHowTheRunEnded) {
  const Scratch scratch;
  EndpointFile file(claimed(scratch.path() / "made" / "here"), fakes::fake_run());
  EXPECT_EQ(file.write("http://127.0.0.1:9464", RunState::running), "");
  EXPECT_EQ(file.path().filename(), "endpoint.rank0.json");
  EXPECT_EQ(
      read(file.path()),
      json::parse(
          R"({"url": "http://127.0.0.1:9464", "node_url": "http://127.0.0.1:9464", "host": "somewhere",
                            "pid": 4242, "run": "fake-gpt",
                            "run_id": "1234.0",
                            "rank": 0, "local_rank": 0, "world_size": 1, "state": "running",
                            "version": "0.1.0", "started": 1700000000.0})"));
  EXPECT_EQ(file.write("", RunState::failed), "");
  EXPECT_EQ(read(file.path())["state"], "failed");
}

TEST(EndpointFile, IsPrivateToTheUser) {
  const Scratch scratch;
  EndpointFile file(claimed(scratch.path() / "made" / "here"), fakes::fake_run());
  ASSERT_EQ(file.write("", RunState::starting), "");
  EXPECT_EQ(mode_of(scratch.path() / "made"), 0700U);
  EXPECT_EQ(mode_of(scratch.path() / "made" / "here"), 0700U);
  EXPECT_EQ(mode_of(file.path()), 0600U);
}

TEST(EndpointFile, LeavesNothingElseBehind) {
  const Scratch scratch;
  const auto directory = claimed(scratch.path());
  EndpointFile file(directory, fakes::fake_run());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(file.write("", RunState::running), "");
  directory->release();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

TEST(EndpointFile, SaysWhatIsWrongWithADirectoryThatCannotBeMade) {
  const Scratch scratch;
  std::ofstream(scratch.path() / "file") << "not a directory";
  EndpointFile file(claimed(scratch.path() / "file" / "below"), fakes::fake_run());
  EXPECT_THAT(file.write("", RunState::running), HasSubstr((scratch.path() / "file").string()));
}

TEST(EndpointFile, DoesNotFollowALinkPutInItsPlace) {
  const Scratch scratch;
  EndpointFile file(claimed(scratch.path()), fakes::fake_run());
  const auto target = scratch.path() / "target";
  std::ofstream(target) << "precious";
  std::filesystem::create_symlink(target, file.path());
  EXPECT_EQ(file.write("", RunState::running), "");
  EXPECT_FALSE(std::filesystem::is_symlink(file.path()));
  std::string text;
  std::ifstream(target) >> text;
  EXPECT_EQ(text, "precious");
}

TEST(EndpointFile, ReplacesAPipePutInItsPlaceAndDoesNotWaitForAReader) {
  const Scratch scratch;
  EndpointFile file(claimed(scratch.path()), fakes::fake_run());
  ASSERT_EQ(file.write("", RunState::running), "");
  std::filesystem::remove(file.path());
  ASSERT_EQ(::mkfifo(file.path().c_str(), 0666), 0);
  EXPECT_EQ(file.write("", RunState::finished), "");  // it looks first who wrote there last
  EXPECT_EQ(read(file.path())["state"], "finished");
}

TEST(EndpointFile, LeavesTheFileToALaterRun) {
  const Scratch scratch;
  const auto directory = claimed(scratch.path());
  EndpointFile first(directory, fakes::fake_run());
  EndpointFile second(directory, fakes::fake_run());
  ASSERT_EQ(first.write("http://first", RunState::running), "");
  ASSERT_EQ(second.write("http://second, which is longer", RunState::running), "");
  EXPECT_EQ(first.write("http://first", RunState::finished), "");
  EXPECT_EQ(read(first.path())["url"], "http://second, which is longer");
}

TEST(EndpointFile, IsWrittenAgainWhereItOrItsDirectoryWasRemoved) {
  const Scratch scratch;
  EndpointFile file(claimed(scratch.path() / "run"), fakes::fake_run());
  ASSERT_EQ(file.write("", RunState::running), "");
  std::filesystem::remove(file.path());
  EXPECT_EQ(file.write("", RunState::finished), "");
  EXPECT_EQ(read(file.path())["state"], "finished");
  std::filesystem::remove_all(scratch.path() / "run");
  EXPECT_EQ(file.write("", RunState::failed), "");
  EXPECT_EQ(read(file.path())["state"], "failed");
}

/// The first write is on the training's own thread, where SIGXFSZ would end the program.
TEST(EndpointFile, OutlivesALimitOnFileSizes) {
  const Scratch scratch;
  EndpointFile file(claimed(scratch.path()), fakes::fake_run());
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1, 1};
    ::signal(SIGXFSZ, SIG_DFL);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EndpointFile own(claimed(scratch.path(), "child.lock"), fakes::fake_run());
    ::_exit(own.write("", RunState::running).empty() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "killed by signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

}  // namespace
}  // namespace gradvane::exporters
