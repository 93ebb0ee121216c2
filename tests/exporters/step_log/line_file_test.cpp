#include "exporters/step_log/line_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>

#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::lines_of;
using fakes::Scratch;
using testing::ElementsAre;

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(LineFile, AppendsToWhatIsThere) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  for (const auto* line : {"one\n", "two\n"}) {
    LineFile file(path, 0, 0);
    EXPECT_TRUE(file.append(line));
  }
  EXPECT_THAT(lines_of(path), ElementsAre("one", "two"));
}

TEST(LineFile, EndsALineThatSomebodyElseLeftUnfinished) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  std::ofstream(path) << "torn";
  LineFile file(path, 0, 0);
  EXPECT_TRUE(file.append("whole\n"));
  EXPECT_THAT(lines_of(path), ElementsAre("torn", "whole"));
}

TEST(LineFile, RotatesBeforeItGetsTooLongAndKeepsSoMany) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  LineFile file(path, 10, 2);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(file.append("line" + std::to_string(i) + "\n"));
  EXPECT_EQ(text_of(path), "line8\n");
  EXPECT_EQ(text_of(path.string() + ".1"), "line7\n");
  EXPECT_EQ(text_of(path.string() + ".2"), "line6\n");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".3"));
}

TEST(LineFile, KeepsNothingWhereNothingIsToBeKept) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  LineFile file(path, 10, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(file.append("line" + std::to_string(i) + "\n"));
  EXPECT_EQ(text_of(path), "line2\n");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".1"));
}

TEST(LineFile, ALineLongerThanTheLimitIsWrittenAllTheSame) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  LineFile file(path, 3, 1);
  EXPECT_TRUE(file.append("longer\n"));
  EXPECT_EQ(text_of(path), "longer\n");
}

TEST(LineFile, AFullDiskLeavesNoHalfLine) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  // A limit on the size of files does what a disk does that is full: a part is written, then nothing.
  std::signal(SIGXFSZ, SIG_DFL);  // which would end the program
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limited{.rlim_cur = 20, .rlim_max = before.rlim_max};
  LineFile file(path, 0, 0);
  ASSERT_TRUE(file.append("0123456789\n"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  EXPECT_FALSE(file.append("abcdefghijklmn\n"));
  EXPECT_TRUE(file.append("short\n"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(file.append("after\n"));
  EXPECT_EQ(text_of(path), "0123456789\nshort\nafter\n");
}

TEST(LineFile, ADeviceThatIsFullFailsWithoutHarm) {
  LineFile file("/dev/full", 10, 1);
  EXPECT_FALSE(file.append("a line\n"));
  EXPECT_FALSE(file.append("a line\n"));
}

// ---- several writers ----------------------------------------------------------------------------------

std::filesystem::path own_name(const std::filesystem::path& path, const std::string& more = "") {
  std::filesystem::path own = path;
  own.replace_filename(path.stem().string() + '.' + std::to_string(::getpid()) + more +
                       path.extension().string());
  return own;
}

TEST(LineFile, HasOneWriterAndOthersTakeANameOfTheirOwn) {
  const Scratch scratch;
  const auto path = scratch.path() / "log.jsonl";
  LineFile first(path, 0, 0);
  LineFile second(path, 0, 0);
  LineFile third(path, 0, 0);
  for (LineFile* file : {&first, &second, &third}) EXPECT_TRUE(file->append("line\n"));
  EXPECT_EQ(first.path(), path);
  EXPECT_EQ(second.path(), own_name(path));
  EXPECT_EQ(third.path(), own_name(path, "-2"));
  for (const auto& written : {first.path(), second.path(), third.path()})
    EXPECT_EQ(text_of(written), "line\n");
}

TEST(LineFile, GoesBackToTheNameThatWasAskedForOnceItIsFree) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  for (int i = 0; i < 2; ++i) {
    LineFile file(path, 0, 0);
    EXPECT_TRUE(file.append("line\n"));
    EXPECT_EQ(file.path(), path);
  }
}

TEST(LineFile, IsNotHeldByAForkedChild) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  auto file = std::make_unique<LineFile>(path, 0, 0);
  ASSERT_TRUE(file->append("line\n"));
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  file.reset();
  LineFile next(path, 0, 0);
  EXPECT_TRUE(next.append("line\n"));
  EXPECT_EQ(next.path(), path);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(LineFile, KeepsItsLockWhenItRotates) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  LineFile first(path, 10, 2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(first.append("line" + std::to_string(i) + "\n"));
  LineFile second(path, 10, 2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(second.append("other" + std::to_string(i) + "\n"));
  EXPECT_EQ(second.path(), own_name(path));
  EXPECT_EQ(text_of(path), "line2\n");
  EXPECT_EQ(text_of(path.string() + ".1"), "line1\n");
  EXPECT_EQ(text_of(own_name(path)), "other2\n");
  // The name is free for a moment in each rotation: whoever takes it then, keeps it.
  std::filesystem::remove(path);
  LineFile third(path, 10, 2);
  ASSERT_TRUE(third.append("third\n"));
  ASSERT_TRUE(first.append("line3\n"));
  EXPECT_NE(first.path(), path);
  EXPECT_EQ(text_of(path), "third\n");
}

TEST(LineFile, WithoutLocksTakesTheNameThatWasAskedFor) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  const LockCall none = [](int) noexcept { return Locked::unsupported; };
  LineFile first(path, 0, 0, none);
  LineFile second(path, 0, 0, none);
  EXPECT_TRUE(first.append("one\n"));
  EXPECT_TRUE(second.append("two\n"));
  EXPECT_THAT(lines_of(path), ElementsAre("one", "two"));
}

TEST(LineFile, CutsOffOnlyWhatItWroteItself) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limited{.rlim_cur = 20, .rlim_max = before.rlim_max};
  LineFile file(path, 0, 0);
  ASSERT_TRUE(file.append("0123\n"));
  std::ofstream(path, std::ios::app) << "theirs\n";  // a writer that asks for no lock
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  EXPECT_FALSE(file.append("abcdefghijklmn\n"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(text_of(path), "0123\ntheirs\n");
}

// ---- what is no file ----------------------------------------------------------------------------------

TEST(LineFile, APipeThatNobodyReadsIsAFailureAndNoWait) {
  const Scratch scratch;
  const auto path = scratch.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  LineFile file(path, 10, 1);
  EXPECT_FALSE(file.append("line\n"));
  EXPECT_EQ(errno, ENXIO);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_TRUE(file.append("line\n"));
  std::array<char, 16> text{};
  EXPECT_EQ(::read(reader, text.data(), text.size()), 5);
  ::close(reader);
  EXPECT_FALSE(file.append("line\n")) << "and SIGPIPE ends nobody";
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".1"));
}

TEST(LineFile, APipeThatIsFullGetsTheRestOfALineFirst) {
  const Scratch scratch;
  const auto path = scratch.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_EQ(::fcntl(reader, F_SETPIPE_SZ, 4096), 4096);
  LineFile file(path, 0, 0);
  const std::string line = std::string(6000, 'x') + '\n';
  EXPECT_TRUE(file.append(line)) << "the rest is kept";
  EXPECT_FALSE(file.append("lost\n")) << "there is no room";
  std::string seen;
  std::array<char, 8192> bytes{};
  const auto drain = [&] {
    for (;;) {
      const ssize_t count = ::read(reader, bytes.data(), bytes.size());
      if (count <= 0) return;
      seen.append(bytes.data(), static_cast<std::size_t>(count));
    }
  };
  drain();
  EXPECT_TRUE(file.append("next\n"));
  drain();
  EXPECT_EQ(seen, line + "next\n");
  ::close(reader);
}

TEST(LineFile, StandardOutputIsNeitherLockedNorRotatedNorMoved) {
  const Scratch scratch;
  const auto path = scratch.path() / "out";
  const pid_t child = ::fork();
  if (child == 0) {
    const int out = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(out, STDOUT_FILENO);
    LineFile first("/dev/stdout", 10, 2);
    LineFile second("/dev/stdout", 10, 2);
    bool ok = true;
    for (int i = 0; i < 3; ++i) ok = first.append("first\n") && second.append("second\n") && ok;
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(lines_of(path).size(), 6U);
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::symlink_status("/dev/stdout")));
  EXPECT_FALSE(std::filesystem::exists("/dev/stdout.1"));
}

TEST(LineFile, ALinkIsFollowedAndNeverRotated) {
  const Scratch scratch;
  const auto path = scratch.path() / "link";
  std::filesystem::create_symlink(scratch.path() / "real", path);
  LineFile file(path, 10, 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(file.append("line" + std::to_string(i) + "\n"));
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  EXPECT_THAT(lines_of(scratch.path() / "real"), ElementsAre("line0", "line1", "line2"));
}

}  // namespace
}  // namespace gradvane::exporters
