#include "exporters/files/private_directory.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;
using fakes::Scratch;
using testing::HasSubstr;
using testing::IsEmpty;

class PrivateDirectory : public testing::Test {
 protected:
  std::string below(const fs::path& path, Missing missing = Missing::is_made) {
    return open_private_directory(base_, path, ::geteuid(), missing).error;
  }
  std::string named(const fs::path& path, Missing missing = Missing::is_made) {
    return open_named_directory(path, ::geteuid(), missing).error;
  }

  Scratch scratch_;
  fs::path base_ = scratch_.path();
};

TEST_F(PrivateDirectory, IsMadeForItsOwnerAlone) {
  EXPECT_THAT(below("a/b"), IsEmpty());
  EXPECT_EQ(fs::status(base_ / "a").permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(base_ / "a/b").permissions(), fs::perms::owner_all);
  EXPECT_THAT(below("a/b", Missing::stays), IsEmpty());
}

TEST_F(PrivateDirectory, IsNotMadeWhereItIsOnlyLookedFor) {
  EXPECT_THAT(below("a/b", Missing::stays), HasSubstr("No such file"));
  EXPECT_FALSE(fs::exists(base_ / "a"));
}

TEST_F(PrivateDirectory, IsRefusedWhereAnyPartOfItIsALink) {
  fs::create_directories(base_ / "real" / "run");
  fs::permissions(base_ / "real", fs::perms::owner_all);
  fs::permissions(base_ / "real" / "run", fs::perms::owner_all);
  EXPECT_THAT(below("real/run"), IsEmpty());
  fs::create_directory_symlink("real", base_ / "link");
  EXPECT_THAT(below("link/run"), HasSubstr("link is not a directory"));
  fs::create_directory_symlink("run", base_ / "real" / "other");
  EXPECT_THAT(below("real/other"), HasSubstr("other is not a directory"));
  std::ofstream(base_ / "file") << "x";
  EXPECT_THAT(below("file"), HasSubstr("is not a directory"));
}

TEST_F(PrivateDirectory, IsRefusedWhereAPipeHasItsName) {
  ASSERT_EQ(::mkfifo((base_ / "pipe").c_str(), 0777), 0);
  EXPECT_THAT(below("pipe/run"), HasSubstr("pipe is not a directory"));
  EXPECT_THAT(named(base_ / "pipe"), HasSubstr("is not a directory"));
}

TEST_F(PrivateDirectory, IsRefusedWhereOthersMayWriteToAnyPartOfIt) {
  for (const mode_t mode : {0777U, 0770U, 0707U, 01777U}) {
    fs::create_directories(base_ / "open" / "run");
    ::chmod((base_ / "open" / "run").c_str(), 0700);
    ::chmod((base_ / "open").c_str(), mode);
    EXPECT_THAT(below("open/run"), HasSubstr("open can be written to by other users")) << mode;
    ::chmod((base_ / "open").c_str(), 0755);
    EXPECT_THAT(below("open/run"), IsEmpty()) << "reading is no harm";
    ::chmod((base_ / "open" / "run").c_str(), mode);
    EXPECT_THAT(below("open/run"), HasSubstr("run can be written to by other users")) << mode;
  }
}

TEST_F(PrivateDirectory, OfAnotherUserIsRefused) {
  fs::create_directory(base_ / "theirs");
  fs::permissions(base_ / "theirs", fs::perms::owner_all);
  const uid_t other = ::geteuid() + 1;  // whom nothing here belongs to
  EXPECT_THAT(open_private_directory(base_, "theirs/run", other, Missing::is_made).error,
              HasSubstr("theirs belongs to another user"));
  EXPECT_FALSE(fs::exists(base_ / "theirs" / "run"));
}

TEST_F(PrivateDirectory, TrustsTheBaseWhichMayBeALink) {
  fs::create_directory(base_ / "real");
  ::chmod((base_ / "real").c_str(), 01777);
  fs::create_directory_symlink("real", base_ / "tmp");
  base_ /= "tmp";
  EXPECT_THAT(below("a/b"), IsEmpty());
  base_ /= "none";
  EXPECT_THAT(below("a"), HasSubstr("No such file"));
}

TEST_F(PrivateDirectory, SaysWhyItCannotBeMade) {
  EXPECT_THAT(open_private_directory("/proc", "gradvane", ::geteuid(), Missing::is_made).error,
              HasSubstr("/proc/gradvane: "));
}

TEST_F(PrivateDirectory, ThatTheUserNamedIsTakenThroughLinksAndWithItsGroup) {
  fs::create_directory(base_ / "project");
  ::chmod((base_ / "project").c_str(), 02775);
  fs::create_directory_symlink("project", base_ / "link");
  EXPECT_THAT(named(base_ / "link"), IsEmpty());
  EXPECT_THAT(named(base_ / "link" / "made" / "here"), IsEmpty());
  EXPECT_THAT(named((base_ / "link" / "made" / "here").string() + "/"), IsEmpty());
  EXPECT_EQ(fs::status(base_ / "project" / "made").permissions() & fs::perms::all,
            fs::perms::owner_all);
  EXPECT_THAT(named(base_ / "nowhere", Missing::stays), HasSubstr("No such file"));
  EXPECT_FALSE(fs::exists(base_ / "nowhere"));
}

TEST_F(PrivateDirectory, ThatTheUserNamedIsRefusedWhereEveryoneMayExchangeFilesInIt) {
  fs::create_directory(base_ / "open");
  ::chmod((base_ / "open").c_str(), 0777);
  EXPECT_THAT(named(base_ / "open"), HasSubstr("can be written to by everyone"));
  ::chmod((base_ / "open").c_str(), 01777);
  EXPECT_THAT(named(base_ / "open"), IsEmpty()) << "as /tmp is";
  EXPECT_THAT(named("/proc/no/such/place"), HasSubstr("/proc/no"));
}

TEST_F(PrivateDirectory, ThatTheUserNamedIsRefusedWhereItIsAnotherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(::chown(base_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(named(base_), HasSubstr("belongs to another user"));
}

TEST_F(PrivateDirectory, KnowsADiskThatIsMemory) {
  const OwnDescriptor shm(::open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!shm.is_open()) GTEST_SKIP() << "there is no /dev/shm";
  EXPECT_TRUE(is_in_memory(shm.get()));
  const OwnDescriptor proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_FALSE(is_in_memory(proc.get()));
}

}  // namespace
}  // namespace gradvane::exporters
