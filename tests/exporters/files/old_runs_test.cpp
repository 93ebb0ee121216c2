#include "exporters/files/old_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "exporters/files/run_directory.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;
using fakes::Scratch;

class OldRuns : public testing::Test {
 protected:
  /// An old file, unless `hours` says otherwise.
  fs::path put(const fs::path& name, int hours = 24 * 15) {
    const fs::path path = runs_ / name;
    fs::create_directories(path.parent_path());
    fs::permissions(runs_, fs::perms::owner_all);
    fs::permissions(path.parent_path(), fs::perms::owner_all);
    std::ofstream(path) << "x";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    return path;
  }
  int clean() { return remove_old_rings(scratch_.path(), ::geteuid()); }

  Scratch scratch_;
  fs::path runs_ = scratch_.path() / runs_of_user(::geteuid());
};

TEST_F(OldRuns, LoseTheirRingsAndTheirDirectoryWhereNothingElseIsInIt) {
  put("killed/killed.rank0.ring.gvrec");
  put("killed/killed.rank0.ring.previous.gvrec");
  put("killed/.killed.rank0.ring.gvrec.abcdefghijkl.part");
  put("killed/endpoint.rank0.json");
  put("killed/rank0.lock");
  EXPECT_EQ(clean(), 3);
  EXPECT_FALSE(fs::exists(runs_ / "killed"));
}

TEST_F(OldRuns, KeepTheirRecordings) {
  const auto recording = put("bad/bad.rank0.step4.nonfinite_grad.gvrec");
  const auto notes = put("noted/notes.ring.txt");
  const auto endpoint = put("bad/endpoint.rank0.json");
  put("bad/bad.rank0.ring.gvrec");
  put("noted/noted.rank0.ring.gvrec");
  EXPECT_EQ(clean(), 2);
  EXPECT_TRUE(fs::exists(recording) && fs::exists(notes) && fs::exists(endpoint));
}

TEST_F(OldRuns, AreNotThoseOfTheLastTwoWeeks) {
  const auto ring = put("new/new.rank0.ring.gvrec", 24 * 13);
  put("new/endpoint.rank0.json");
  EXPECT_EQ(clean(), 0);
  EXPECT_TRUE(fs::exists(ring));
}

TEST_F(OldRuns, AreNotThoseOfALivingProcess) {
  const auto ring = put("train/train.rank0.ring.gvrec");
  ::setenv("TMPDIR", scratch_.path().c_str(), 1);
  {
    const RunDirectory living({.run = "train", .lock_name = "rank0.lock"});
    ASSERT_EQ(living.path(), ring.parent_path());
    EXPECT_EQ(clean(), 0);
    EXPECT_TRUE(fs::exists(ring));
    EXPECT_TRUE(fs::exists(ring.parent_path() / "rank0.lock"));
  }
  ::unsetenv("TMPDIR");
  EXPECT_EQ(clean(), 1);
}

TEST_F(OldRuns, AreNotReachedThroughALink) {
  (void)put("elsewhere/a.rank0.ring.gvrec");
  const fs::path moved = scratch_.path() / "moved";
  fs::rename(runs_ / "elsewhere", moved);
  fs::create_directory_symlink(moved, runs_ / "elsewhere");
  fs::create_directories(runs_ / "linked");
  fs::permissions(runs_ / "linked", fs::perms::owner_all);
  fs::create_symlink(moved / "a.rank0.ring.gvrec", runs_ / "linked" / "a.rank0.ring.gvrec");
  EXPECT_EQ(clean(), 0);
  EXPECT_TRUE(fs::exists(moved / "a.rank0.ring.gvrec"));
}

TEST_F(OldRuns, AreNotLookedForWhereOthersMayWrite) {
  const auto ring = put("train/train.rank0.ring.gvrec");
  fs::permissions(runs_, fs::perms::all);
  EXPECT_EQ(clean(), 0);
  EXPECT_EQ(remove_old_rings(scratch_.path() / "none", ::geteuid()), 0);
  EXPECT_EQ(remove_old_rings(scratch_.path(), ::geteuid() + 1), 0);
  EXPECT_TRUE(fs::exists(ring));
}

}  // namespace
}  // namespace gradvane::exporters
