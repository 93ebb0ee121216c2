#include "exporters/files/safe_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;
using fakes::Scratch;

class SafeFile : public testing::Test {
 protected:
  [[nodiscard]] fs::path at(const char* name) const { return scratch_.path() / name; }
  std::optional<std::string> read(const char* name, std::size_t limit = 100) {
    return read_regular(directory_.get(), name, limit, ::geteuid());
  }

  Scratch scratch_;
  OwnDescriptor directory_{::open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
};

TEST_F(SafeFile, IsReadWholeUpToTheLimit) {
  std::ofstream(at("file")) << "0123456789";
  EXPECT_EQ(read("file", 10), "0123456789");
  EXPECT_EQ(read("file", 9), std::nullopt);
  EXPECT_EQ(errno, EFBIG);
  EXPECT_EQ(read("none"), std::nullopt);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(SafeFile, ALinkAPipeADirectoryAndADeviceAreRefused) {
  std::ofstream(at("file")) << "precious";
  fs::create_symlink("file", at("link"));
  fs::create_directory(at("folder"));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0666), 0);
  EXPECT_EQ(read("link"), std::nullopt);
  EXPECT_EQ(errno, ELOOP);
  EXPECT_EQ(read("pipe"), std::nullopt);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(read("folder"), std::nullopt);
  EXPECT_FALSE(open_regular(AT_FDCWD, "/dev/zero", O_RDONLY, 0).is_open());
  // For writing a pipe without a reader is refused by the kernel already.
  EXPECT_FALSE(open_regular(directory_.get(), "pipe", O_WRONLY, ::geteuid()).is_open());
}

/// The control of the test above: what a plain open() of the pipe does.
TEST_F(SafeFile, APlainOpenOfAPipeWaitsForAPartner) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0666), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::ifstream file(at("pipe"));
    ::_exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WNOHANG), 0) << "it did not wait";
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
}

TEST_F(SafeFile, OfAnotherUserIsRefused) {
  std::ofstream(at("file")) << "not ours";
  EXPECT_EQ(read_regular(directory_.get(), "file", 100, ::geteuid() + 1), std::nullopt);
  EXPECT_EQ(errno, EPERM);
}

TEST_F(SafeFile, IsReplacedWholeAndNotFollowed) {
  std::ofstream(at("precious")) << "precious";
  fs::create_symlink("precious", at("link"));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0666), 0);
  const std::array<std::string_view, 2> parts{"one ", "two"};
  for (const char* name : {"link", "pipe", "new"}) {
    EXPECT_TRUE(write_whole_file(directory_.get(), name, parts, 0600)) << name;
    EXPECT_EQ(read(name), "one two") << name;
    EXPECT_EQ(fs::status(at(name)).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
  EXPECT_EQ(read("precious"), "precious");
  EXPECT_THAT(names_in(directory_.get(), 100),
              testing::UnorderedElementsAre("precious", "link", "pipe", "new"));
}

TEST_F(SafeFile, ThatCannotBeWrittenLeavesNothing) {
  fs::create_directories(at("folder") / "full");
  const std::array<std::string_view, 1> parts{"text"};
  EXPECT_FALSE(write_whole_file(directory_.get(), "folder", parts, 0600));
  EXPECT_THAT(names_in(directory_.get(), 100), testing::ElementsAre("folder"));
}

TEST_F(SafeFile, NewNamesAreNeverTheSame) {
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) names.insert(create_beside(directory_.get(), "a", 0600).name);
  EXPECT_EQ(names.size(), 100U);
  EXPECT_TRUE(names.begin()->starts_with(".a."));
  EXPECT_EQ(names_in(directory_.get(), 1000).size(), 100U);
  EXPECT_EQ(names_in(directory_.get(), 7).size(), 7U);
}

}  // namespace
}  // namespace gradvane::exporters
