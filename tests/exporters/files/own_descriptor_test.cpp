#include "exporters/files/own_descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace gradvane::exporters {
namespace {

int open_null() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

int in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OwnDescriptor, IsClosedWithItsOwner) {
  int number = -1;
  {
    const OwnDescriptor file(open_null());
    number = file.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(OwnDescriptor, MovesWithoutClosing) {
  OwnDescriptor first(open_null());
  const int number = first.get();
  OwnDescriptor second(std::move(first));
  EXPECT_EQ(second.get(), number);
  OwnDescriptor third(open_null());
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_EQ(third.get(), number);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(number));
}

TEST(OwnDescriptor, IsNeverTakenForAStandardStream) {
  EXPECT_EQ(in_child([] {
              ::close(STDOUT_FILENO);
              ::close(STDERR_FILENO);
              const OwnDescriptor file(open_null());
              return file.get() > STDERR_FILENO && !is_open(STDOUT_FILENO);
            }),
            0);
}

TEST(OwnDescriptor, LeavesTheLowNumbersToTheProgram) {
  const int lowest = open_null();
  ::close(lowest);
  const OwnDescriptor file(open_null());
  EXPECT_GE(file.get(), OwnDescriptor::kFirst);
  const int theirs = open_null();
  EXPECT_EQ(theirs, lowest) << "what open() gives without us";
  ::close(theirs);
}

TEST(OwnDescriptor, HasANumberWhereTheProcessMayOpenFew) {
  EXPECT_EQ(in_child([] {
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              limit.rlim_cur = 20;
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
              std::vector<OwnDescriptor> all;
              for (int number = open_null(); number >= 0; number = open_null())
                all.emplace_back(number);
              return all.front().get() >= 10 && all.back().is_open() && all.back().get() < 10;
            }),
            0);
}

TEST(OwnDescriptor, LeavesAFileAloneThatHasItsNumberNow) {
  const int theirs = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  int number = -1;
  {
    const OwnDescriptor file(open_null());
    number = file.get();
    ASSERT_EQ(::dup2(theirs, number), number);  // what closing everything and opening anew comes to
    EXPECT_FALSE(file.is_open());
  }
  EXPECT_TRUE(is_open(number));
  ::close(number);
  ::close(theirs);
}

TEST(OwnDescriptor, LeavesAFileAloneThatGotTheNumberOfANewFileBeforeItWasLookedAt) {
  const int ours = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int theirs = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_TRUE(OwnDescriptor(ours, AT_FDCWD, "/dev/null").is_open());
  EXPECT_FALSE(is_open(ours)) << "owned, and closed at the end";
  errno = 0;
  EXPECT_FALSE(OwnDescriptor(theirs, AT_FDCWD, "/dev/null").is_open());
  EXPECT_EQ(errno, EBADF);
  EXPECT_TRUE(is_open(theirs));
  EXPECT_FALSE(OwnDescriptor(-1, AT_FDCWD, "/dev/null").is_open());
  ::close(theirs);
}

TEST(OwnDescriptor, IsClosedInAForkedChildAndOpenInItsParent) {
  const OwnDescriptor file(open_null());
  const int plain = open_null();
  const int number = file.get();
  EXPECT_EQ(in_child([&] { return !file.is_open() && !is_open(number) && is_open(plain); }), 0);
  EXPECT_TRUE(is_open(number));
  ::close(plain);
}

TEST(OwnDescriptor, ClosesNoFileThatAChildOpenedUnderTheSameNumber) {
  OwnDescriptor file(open_null());
  const int number = file.get();
  const auto body = [&] {
    const int childs = ::fcntl(open_null(), F_DUPFD_CLOEXEC, number);
    if (childs != number) return false;
    file.close();
    return is_open(childs);
  };
  EXPECT_EQ(in_child(body), 0);
}

TEST(OwnDescriptor, IsRefusedWhereThereAreTooMany) {
  std::vector<OwnDescriptor> all;
  for (int i = 0; i <= OwnDescriptor::kMost; ++i) {
    const int number = open_null();
    if (number < 0) GTEST_SKIP() << "this process may not open so many files";
    all.emplace_back(number);
    if (i == OwnDescriptor::kMost) {
      EXPECT_EQ(errno, EMFILE);
      EXPECT_FALSE(all.back().is_open());
      EXPECT_FALSE(is_open(number)) << "it was given away";
    }
  }
}

TEST(OwnDescriptor, ThreadsMayOpenAndCloseThemWhileOthersFork) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!stop) OwnDescriptor(open_null()).close();
    });
  const OwnDescriptor kept(open_null());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(in_child([&] { return !kept.is_open(); }), 0);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(is_open(kept.get()));
}

}  // namespace
}  // namespace gradvane::exporters
