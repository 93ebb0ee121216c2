#include "examples/char_gpt/report.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>

namespace char_gpt {
namespace {

using testing::HasSubstr;

class Report : public testing::Test {
 protected:
  void SetUp() override {
    path_ =
        std::filesystem::path(testing::TempDir()) /
        ("report." + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string written() const {
    std::ifstream file(path_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::filesystem::path path_;
};

TEST_F(Report, LossesComeBackBitForBit) {
  const std::vector<float> losses = {4.45434713F,
                                     1.0F / 3,
                                     1e-38F,
                                     std::numeric_limits<float>::quiet_NaN(),
                                     -std::numeric_limits<float>::quiet_NaN(),
                                     std::numeric_limits<float>::infinity()};
  auto file = open_output("--loss-log", path_.string());
  write_losses(file, losses);
  std::istringstream lines(written());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    std::size_t step = 0;
    std::string loss;
    lines >> step >> loss;
    EXPECT_EQ(step, i + 1);
    if (losses[i] == losses[i]) {
      EXPECT_EQ(std::strtof(loss.c_str(), nullptr), losses[i]);
    } else {
      EXPECT_EQ(loss, "nan");
    }
  }
}

TEST_F(Report, SummaryStaysJsonWhereNumbersAreNotFinite) {
  Summary summary;
  summary.size = "tiny";
  summary.vocabulary = 86;
  summary.held_out_after = std::numeric_limits<double>::quiet_NaN();
  summary.last_loss = -std::numeric_limits<double>::infinity();
  auto file = open_output("--json", path_.string());
  write_summary(file, summary);
  EXPECT_THAT(written(), HasSubstr("\"held_out_loss\": \"nan\""));
  EXPECT_THAT(written(), HasSubstr("\"last_loss\": \"-inf\""));
  EXPECT_THAT(written(), Not(HasSubstr("held_out_loss_before"))) << "not evaluated";
  EXPECT_THAT(written(), Not(HasSubstr("nonfinite_steps"))) << "nobody counted them";
}

TEST_F(Report, AFileThatCannotBeWrittenIsNamedBeforeTheRun) {
  try {
    const auto file = open_output("--json", "/nonexistent/folder/out.json");
    FAIL() << "opened";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("--json /nonexistent/folder/out.json"));
  }
  EXPECT_FALSE(open_output("--json", "").is_open());
}

}  // namespace
}  // namespace char_gpt
