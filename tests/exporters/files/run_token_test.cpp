#include "exporters/files/run_token.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::Scratch;

class RunTokenTest : public testing::Test {
 protected:
  [[nodiscard]] std::string token() const { return run_token(directory_, ::geteuid()); }
  [[nodiscard]] std::filesystem::path file() const { return scratch_.path() / "token"; }

  Scratch scratch_;
  int directory_ = ::open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
};

TEST_F(RunTokenTest, IsMadeOnceForItsUserAloneAndStays) {
  const std::string made = token();
  EXPECT_EQ(made.size(), 32U);
  EXPECT_TRUE(is_access_token(made));
  EXPECT_EQ(token(), made);
  struct stat status{};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  std::filesystem::remove(file());
  EXPECT_NE(token(), made);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.path()), {}), 1)
      << "nothing else is left";
}

TEST_F(RunTokenTest, AllWhoAskAtOnceGetTheSame) {
  std::vector<std::string> told(8);
  {
    std::vector<std::jthread> threads;
    for (std::string& one : told) threads.emplace_back([this, &one] { one = token(); });
  }
  EXPECT_EQ(std::set(told.begin(), told.end()).size(), 1U);
  EXPECT_FALSE(told.front().empty());
}

TEST_F(RunTokenTest, ATextOfTheUsersIsTakenAndWhatIsNoneIsRefused) {
  std::ofstream(file()) << "my-own-token-of-today\n";
  EXPECT_EQ(token(), "my-own-token-of-today");
  std::ofstream(file()) << "short\n";
  EXPECT_EQ(token(), "");
  EXPECT_EQ(errno, EINVAL);
  std::filesystem::remove(file());
  std::filesystem::create_symlink("/etc/hostname", file());
  EXPECT_EQ(token(), "") << "a link";
}

TEST_F(RunTokenTest, WithoutADirectoryThereIsNone) { EXPECT_EQ(run_token(-1, ::geteuid()), ""); }

TEST(AccessTokenText, HasSixteenCharactersOrMoreThatAUrlTakesAsTheyAre) {
  EXPECT_TRUE(is_access_token("0123456789abcdef"));
  EXPECT_TRUE(is_access_token(std::string(128, 'Z')));
  EXPECT_TRUE(is_access_token("abc-._~ABC-._~789"));
  for (const std::string& bad : {std::string("0123456789abcde"), std::string(129, 'z'),
                                 std::string("0123456789 abcdef"), std::string("0123456789/abcdef"),
                                 std::string("0123456789abcd\nf"), std::string("0123456789abcd%f")})
    EXPECT_FALSE(is_access_token(bad)) << bad;
}

}  // namespace
}  // namespace gradvane::exporters
