#include "exporters/files/file_lock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <functional>

#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;
using fakes::Scratch;

class FileLockTest : public testing::Test {
 public:
  ~FileLockTest() override { ::close(directory_); }

 protected:
  Locked take(FileLock& lock, LockCall call = lock_file) {
    return lock.take(directory_, "a.lock", ::geteuid(), call);
  }
  [[nodiscard]] fs::path path() const { return scratch_.path() / "a.lock"; }

  Scratch scratch_;
  int directory_ = ::open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
};

/// A child that holds still until it is killed.
class Child {
 public:
  explicit Child(const std::function<bool()>& body) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const char word = body() ? 'y' : 'n';
      if (::write(pipe[1], &word, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    EXPECT_EQ(::read(pipe[0], &said_, 1), 1);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;  // it ends with us
  Child& operator=(const Child&) = delete;
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    pid_ = 0;
  }
  [[nodiscard]] bool said_yes() const { return said_ == 'y'; }

 private:
  pid_t pid_ = 0;
  char said_ = ' ';
};

TEST_F(FileLockTest, IsHeldByOneAtATimeAlsoWithinAProcess) {
  FileLock first;
  ASSERT_EQ(take(first), Locked::yes);
  FileLock second;
  EXPECT_EQ(take(second), Locked::busy);
  first.release(directory_);
  EXPECT_FALSE(fs::exists(path())) << "an end in order leaves nothing";
  EXPECT_EQ(take(second), Locked::yes);
}

TEST_F(FileLockTest, IsTakenOverFromAProcessThatWasKilled) {
  Child child([&] {
    static FileLock lock;
    return take(lock) == Locked::yes;
  });
  ASSERT_TRUE(child.said_yes());
  FileLock ours;
  EXPECT_EQ(take(ours), Locked::busy);
  child.kill();
  EXPECT_TRUE(fs::exists(path()));
  EXPECT_EQ(take(ours), Locked::yes);
}

TEST_F(FileLockTest, IsNotHeldByAForkedChildThatLivesLonger) {
  FileLock lock;
  ASSERT_EQ(take(lock), Locked::yes);
  const Child child([&] {
    lock.release(directory_);  // a child's end must not take it from the parent either
    return !lock.is_held();
  });
  ASSERT_TRUE(child.said_yes());
  EXPECT_TRUE(fs::exists(path()));
  FileLock other;
  EXPECT_EQ(take(other), Locked::busy) << "the parent has it still";
  lock = {};  // as if the parent was killed: nobody unlocks it
  EXPECT_EQ(take(other), Locked::yes);
}

/// The control of the test above: a plain descriptor is the child's too.
TEST_F(FileLockTest, APlainDescriptorIsHeldByAChild) {
  const int file = ::open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(lock_file(file), Locked::yes);
  const Child child([] { return true; });
  ::close(file);
  FileLock other;
  EXPECT_EQ(take(other), Locked::busy);
}

TEST_F(FileLockTest, ALinkAPipeAndAFolderInItsPlaceAreBusyAndNothingWaits) {
  FileLock lock;
  fs::create_symlink("elsewhere", path());
  EXPECT_EQ(take(lock), Locked::busy);
  EXPECT_FALSE(fs::exists(scratch_.path() / "elsewhere"));
  fs::remove(path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0666), 0);
  EXPECT_EQ(take(lock), Locked::busy);
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_EQ(take(lock), Locked::busy);
}

TEST_F(FileLockTest, AnotherUsersFileIsBusy) {
  FileLock lock;
  EXPECT_EQ(lock.take(directory_, "a.lock", ::geteuid() + 1), Locked::busy);
}

TEST_F(FileLockTest, AFileSystemWithoutLocksSaysSoAndKeepsNoFile) {
  FileLock lock;
  EXPECT_EQ(take(lock, [](int) noexcept { return Locked::unsupported; }), Locked::unsupported);
  EXPECT_FALSE(lock.is_held());
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(FileLockTest, AFileThatWasReplacedLocksNothing) {
  FileLock first;
  ASSERT_EQ(take(first), Locked::yes);
  fs::remove(path());
  FileLock second;
  ASSERT_EQ(take(second), Locked::yes) << "of another file by that name";
  first.release(directory_);
  EXPECT_TRUE(fs::exists(path())) << "which is not the first one's to remove";
}

}  // namespace
}  // namespace gradvane::exporters
