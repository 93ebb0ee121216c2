#include "exporters/step_log/sync_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "exporters/json/record_json.hpp"
#include "exporters/json/sync_json.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json read(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

record::RunInfo run_of(int pid, int rank = 0, int world_size = 1) {
  record::RunInfo run = fakes::fake_run();
  run.pid = pid;
  run.rank = rank;
  run.world_size = world_size;
  return run;
}

TEST(SyncReport, SaysWhatTheApiSays) {
  const fakes::Scratch scratch;
  const record::SyncSummary syncs = fakes::fake_syncs(16);
  const record::RunInfo run = run_of(7);
  EXPECT_EQ(write_sync_report(scratch.path() / "syncs.json", syncs, run), "");
  EXPECT_EQ(read(scratch.path() / "syncs.json"), json::parse(to_text(to_json(syncs, run))));
  EXPECT_THAT(files_in(scratch.path()), ElementsAre("syncs.json"));
}

TEST(SyncReport, PutsTheRankBeforeTheSuffix) {
  const fakes::Scratch scratch;
  for (const int rank : {0, 3})
    EXPECT_EQ(write_sync_report(scratch.path() / "syncs.json", fakes::fake_syncs(1),
                                run_of(7 + rank, rank, 4)),
              "");
  EXPECT_THAT(files_in(scratch.path()), ElementsAre("syncs.rank0.json", "syncs.rank3.json"));
  EXPECT_EQ(read(scratch.path() / "syncs.rank3.json")["rank"], 3);
}

TEST(SyncReport, HasAFileForEachProcessInADirectory) {
  const fakes::Scratch scratch;
  const std::string with_slash = scratch.path().string() + "/";
  EXPECT_EQ(write_sync_report(scratch.path(), fakes::fake_syncs(1), run_of(41)), "");
  EXPECT_EQ(write_sync_report(with_slash, fakes::fake_syncs(2), run_of(42)), "");
  EXPECT_EQ(write_sync_report(with_slash, fakes::fake_syncs(3), run_of(43, 3, 4)), "");
  EXPECT_THAT(files_in(scratch.path()),
              ElementsAre("syncs.41.json", "syncs.42.json", "syncs.43.json"));
  EXPECT_EQ(read(scratch.path() / "syncs.42.json")["steps"], 2);
}

TEST(SyncReport, ReplacesTheOneBefore) {
  const fakes::Scratch scratch;
  const fs::path path = scratch.path() / "syncs.json";
  for (const int steps : {1, 2})
    EXPECT_EQ(write_sync_report(path, fakes::fake_syncs(steps), run_of(7)), "");
  EXPECT_EQ(read(path)["steps"], 2);
  EXPECT_THAT(files_in(scratch.path()), ElementsAre("syncs.json"));
}

TEST(SyncReport, IsWholeWheneverItIsRead) {
  const fakes::Scratch scratch;
  const fs::path path = scratch.path() / "syncs.json";
  ASSERT_EQ(write_sync_report(path, fakes::fake_syncs(1), run_of(7)), "");
  std::jthread writer([&](const std::stop_token& stop) {
    for (int steps = 1; !stop.stop_requested(); steps = steps % 64 + 1)
      (void)write_sync_report(path, fakes::fake_syncs(steps), run_of(7));
  });
  for (int i = 0; i < 300; ++i) EXPECT_GE(read(path)["steps"], 1);  // half a document would throw
}

TEST(SyncReport, ThatCannotBeWrittenSaysWhyAndLeavesNothing) {
  const fakes::Scratch scratch;
  const record::SyncSummary syncs = fakes::fake_syncs(1);
  EXPECT_THAT(write_sync_report(scratch.path() / "nowhere" / "syncs.json", syncs, run_of(7)),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(write_sync_report(scratch.path().string() + "/nowhere/", syncs, run_of(7)),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(files_in(scratch.path()), IsEmpty());
  // Written beside it, but a directory is where it should go.
  fs::create_directories(scratch.path() / "syncs.7.json" / "full");
  EXPECT_THAT(write_sync_report(scratch.path(), syncs, run_of(7)), HasSubstr("cannot write"));
  EXPECT_THAT(files_in(scratch.path()), ElementsAre("syncs.7.json"));
  // Every byte is refused.
  EXPECT_THAT(write_sync_report("/proc/self/syncs.json", syncs, run_of(7)),
              HasSubstr("cannot write"));
}

TEST(SyncReport, ReplacesALinkAndAPipeInsteadOfFollowingThem) {
  const fakes::Scratch scratch;
  const record::SyncSummary syncs = fakes::fake_syncs(1);
  std::ofstream(scratch.path() / "precious") << "precious";
  fs::create_symlink("precious", scratch.path() / "syncs.json");
  ASSERT_EQ(::mkfifo((scratch.path() / "syncs.8.json").c_str(), 0666), 0);
  EXPECT_EQ(write_sync_report(scratch.path() / "syncs.json", syncs, run_of(7)), "");
  EXPECT_EQ(write_sync_report(scratch.path(), syncs, run_of(8)), "");
  EXPECT_EQ(fs::file_size(scratch.path() / "precious"), 8U);
  EXPECT_EQ(read(scratch.path() / "syncs.json")["steps"], 1);
  EXPECT_EQ(read(scratch.path() / "syncs.8.json")["steps"], 1);
}

}  // namespace
}  // namespace gradvane::exporters
