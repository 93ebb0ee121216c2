#include "examples/char_gpt/training/text_data.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

namespace char_gpt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string decode(const Text& text, const std::vector<std::uint8_t>& tokens) {
  std::string result;
  for (const auto token : tokens) result += text.vocabulary.at(token);
  return result;
}

TEST(TextData, HoldsOutTheLastTenthOfEveryFile) {
  const Text text = make_text({"abcdefghij", "0123456789ABCDEFGHIJ", "short"});
  EXPECT_EQ(decode(text, text.training), "abcdefghi0123456789ABCDEFGHshort");
  EXPECT_EQ(decode(text, text.held_out), "jIJ");
  EXPECT_EQ(text.files, 3);
}

TEST(TextData, NumbersTheBytesThatOccur) {
  const Text text =
      make_text({"b\xc3\xa4"
                 "a\n"});
  EXPECT_EQ(text.vocabulary, "\nab\xa4\xc3") << "ascending as unsigned bytes";
  EXPECT_EQ(decode(text, text.training),
            "b\xc3\xa4"
            "a\n");
}

class TextFolder : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("char_gpt_text." + std::to_string(getpid()));
    fs::create_directories(root_ / "sub");
    std::ofstream(root_ / "b.txt") << "bbbb";
    std::ofstream(root_ / "a.txt") << "aaa";
    std::ofstream(root_ / "sub" / "c.txt") << "cc";
    fs::create_symlink("a.txt", root_ / "again");
    fs::create_directories(root_ / "empty");
  }
  void TearDown() override {
    // One by one: libtorch.so 2.11 exports a std::filesystem::remove_all of its own, which crashes.
    for (const char* path : {"sub/c.txt", "sub", "again", "a.txt", "b.txt", "empty", ""}) {
      fs::remove(root_ / path);
    }
  }

  fs::path root_;
};

TEST_F(TextFolder, IsReadInTheOrderOfPathsWithoutSecondNames) {
  const Text text = read_text(root_);
  EXPECT_EQ(text.files, 3);
  EXPECT_EQ(decode(text, text.training), "aaabbbbcc");
}

TEST_F(TextFolder, OneFileMayBeNamedAlsoByASymbolicLink) {
  const Text text = read_text(root_ / "again");
  EXPECT_EQ(decode(text, text.training), "aaa");
}

TEST_F(TextFolder, WithoutTextIsRefusedByName) {
  for (const auto& path : {root_ / "empty", root_ / "absent"}) {
    try {
      const Text text = read_text(path);
      ADD_FAILURE() << path << " was read";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("--data " + path.string()));
    }
  }
}

}  // namespace
}  // namespace char_gpt
