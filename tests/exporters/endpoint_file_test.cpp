#include "exporters/endpoint_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

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
  EndpointFile file(scratch.path() / "made" / "here", fakes::fake_run());
  EXPECT_EQ(file.write("http://127.0.0.1:9464", RunState::running), "");
  EXPECT_EQ(file.path().filename(), "endpoint.rank0.json");
  EXPECT_EQ(read(file.path()),
            json::parse(R"({"url": "http://127.0.0.1:9464", "pid": 4242, "run": "fake-gpt",
                            "rank": 0, "local_rank": 0, "world_size": 1, "state": "running",
                            "version": "0.1.0", "started": 1700000000.0})"));
  EXPECT_EQ(file.write("", RunState::failed), "");
  EXPECT_EQ(read(file.path())["state"], "failed");
}

TEST(EndpointFile, IsPrivateToTheUser) {
  const Scratch scratch;
  EndpointFile file(scratch.path() / "made" / "here", fakes::fake_run());
  ASSERT_EQ(file.write("", RunState::starting), "");
  EXPECT_EQ(mode_of(scratch.path() / "made"), 0700U);
  EXPECT_EQ(mode_of(scratch.path() / "made" / "here"), 0700U);
  EXPECT_EQ(mode_of(file.path()), 0600U);
}

TEST(EndpointFile, LeavesNothingElseBehind) {
  const Scratch scratch;
  EndpointFile file(scratch.path(), fakes::fake_run());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(file.write("", RunState::running), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

TEST(EndpointFile, RefusesADirectoryOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  const Scratch scratch;
  ASSERT_EQ(::chown(scratch.path().c_str(), 65534, 65534), 0);
  EndpointFile file(scratch.path(), fakes::fake_run());
  EXPECT_THAT(file.write("", RunState::running), HasSubstr("belongs to another user"));
  EXPECT_FALSE(std::filesystem::exists(file.path()));
}

TEST(EndpointFile, SaysWhatIsWrongWithADirectoryThatCannotBeMade) {
  const Scratch scratch;
  std::ofstream(scratch.path() / "file") << "not a directory";
  EndpointFile file(scratch.path() / "file" / "below", fakes::fake_run());
  EXPECT_THAT(file.write("", RunState::running), HasSubstr((scratch.path() / "file").string()));
}

TEST(EndpointFile, DoesNotFollowALinkPutInItsPlace) {
  const Scratch scratch;
  EndpointFile file(scratch.path(), fakes::fake_run());
  const auto target = scratch.path() / "target";
  std::ofstream(target) << "precious";
  std::filesystem::create_symlink(target, file.path());
  EXPECT_EQ(file.write("", RunState::running), "");
  EXPECT_FALSE(std::filesystem::is_symlink(file.path()));
  std::string text;
  std::ifstream(target) >> text;
  EXPECT_EQ(text, "precious");
}

TEST(EndpointFile, LeavesTheFileToALaterRun) {
  const Scratch scratch;
  EndpointFile first(scratch.path(), fakes::fake_run());
  EndpointFile second(scratch.path(), fakes::fake_run());  // of the same process, say
  ASSERT_EQ(first.write("http://first", RunState::running), "");
  ASSERT_EQ(second.write("http://second", RunState::running), "");
  EXPECT_EQ(first.write("http://first", RunState::finished), "");
  EXPECT_EQ(read(first.path())["url"], "http://second");
}

TEST(EndpointFile, IsWrittenAgainWhereSomebodyRemovedIt) {
  const Scratch scratch;
  EndpointFile file(scratch.path(), fakes::fake_run());
  ASSERT_EQ(file.write("", RunState::running), "");
  std::filesystem::remove(file.path());
  EXPECT_EQ(file.write("", RunState::finished), "");
  EXPECT_EQ(read(file.path())["state"], "finished");
}

TEST(EndpointFile, TheDefaultDirectoryIsTheUsersOwnAndNamedAfterTheRun) {
  ::setenv("TMPDIR", "/somewhere", 1);
  const std::string base = "/somewhere/gradvane-" + std::to_string(::geteuid()) + "/";
  EXPECT_EQ(default_run_directory("gpt-2.small"), base + "gpt-2.small");
  EXPECT_EQ(default_run_directory("a/b c"), base + "a_b_c");
  EXPECT_EQ(default_run_directory(".."), base + "_..");
  EXPECT_EQ(default_run_directory(""), base + "_");
  ::unsetenv("TMPDIR");
  EXPECT_TRUE(default_run_directory("x").string().starts_with("/tmp/gradvane-"));
}

}  // namespace
}  // namespace gradvane::exporters
