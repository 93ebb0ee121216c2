#include "examples/char_gpt/training/evaluation.hpp"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "examples/char_gpt/training/model.hpp"

namespace char_gpt {
namespace {

Text some_text() {
  std::string file;
  for (int i = 0; i < 500; ++i) file += "the quick brown fox\n";
  return make_text({file});
}

class Evaluation : public testing::Test {
 protected:
  Evaluation() : text_(some_text()) {
    at::manual_seed(1);
    model_ = std::make_unique<Gpt>(GptShape{.vocabulary = std::ssize(text_.vocabulary),
                                            .layers = 1,
                                            .heads = 2,
                                            .width = 16,
                                            .context = 8,
                                            .dropout = 0.5});
  }

  Text text_;
  std::unique_ptr<Gpt> model_;
};

TEST_F(Evaluation, HeldOutLossIsRepeatableAndLeavesTheModelTraining) {
  const double loss = held_out_loss(*model_, text_, at::kCPU);
  EXPECT_NEAR(loss, std::log(static_cast<double>(text_.vocabulary.size())), 0.2);
  EXPECT_EQ(held_out_loss(*model_, text_, at::kCPU), loss) << "dropout is off";
  EXPECT_TRUE(model_->is_training());
  EXPECT_FALSE(model_->parameters()[0].grad().defined());
}

TEST_F(Evaluation, HeldOutLossRefusesATextShorterThanOneSequence) {
  text_.held_out.resize(8);
  EXPECT_THROW(static_cast<void>(held_out_loss(*model_, text_, at::kCPU)), std::invalid_argument);
  text_.held_out.resize(9);
  EXPECT_NO_THROW(static_cast<void>(held_out_loss(*model_, text_, at::kCPU)));
}

TEST_F(Evaluation, SampleHasItsLengthItsSeedAndTheTextsCharacters) {
  const auto written = sample(*model_, text_, 40, 7, at::kCPU);
  EXPECT_EQ(written.size(), 40U);
  EXPECT_EQ(written.find_first_not_of(text_.vocabulary), std::string::npos);
  EXPECT_EQ(sample(*model_, text_, 40, 7, at::kCPU), written);
  EXPECT_NE(sample(*model_, text_, 40, 8, at::kCPU), written);
}

TEST_F(Evaluation, SampleOfARuinedModelEnds) {
  const c10::AutoGradMode no_gradients(false);
  model_->parameters()[0].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(sample(*model_, text_, 40, 7, at::kCPU), "");
}

TEST_F(Evaluation, ChecksumSeesOneBitOfOneWeight) {
  const auto before = weights_checksum(*model_);
  EXPECT_EQ(before.size(), 16U);
  const c10::AutoGradMode no_gradients(false);
  auto element = model_->parameters().back().flatten()[0];
  const float value = element.item<float>();
  element.fill_(std::nextafter(value, 10.0F));
  EXPECT_NE(weights_checksum(*model_), before);
  element.fill_(value);
  EXPECT_EQ(weights_checksum(*model_), before);
}

}  // namespace
}  // namespace char_gpt
