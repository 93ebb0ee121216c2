#include "examples/char_gpt/training/model.hpp"

#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

#include "examples/char_gpt/fault.hpp"

namespace char_gpt {
namespace {

constexpr GptShape kShape{
    .vocabulary = 50, .layers = 2, .heads = 4, .width = 32, .context = 16, .dropout = 0.0};

at::Tensor random_tokens(std::int64_t batch, std::int64_t time) {
  return at::randint(kShape.vocabulary, {batch, time}, at::kLong);
}

class Model : public testing::Test {
 protected:
  Model() { at::manual_seed(1); }
};

TEST_F(Model, YieldsAScoreForEveryTokenOfTheVocabulary) {
  Gpt model(kShape);
  EXPECT_EQ(model.logits(random_tokens(3, 16)).sizes(), (std::vector<std::int64_t>{3, 16, 50}));
  EXPECT_EQ(model.logits(random_tokens(1, 5)).sizes(), (std::vector<std::int64_t>{1, 5, 50}));
}

TEST_F(Model, DoesNotSeeLaterTokens) {
  const c10::AutoGradMode no_gradients(false);
  Gpt model(kShape);
  // Weights of a size at which every path shows; at their start values attention is nearly flat.
  for (auto& weight : model.parameters()) weight.mul_(weight.dim() >= 2 ? 20.0 : 1.0);
  const auto tokens = random_tokens(2, 16);
  const auto scores = model.logits(tokens);
  for (const std::int64_t changed : {0, 7, 15}) {
    auto other = tokens.clone();
    other.select(1, changed).add_(1).remainder_(kShape.vocabulary);
    const auto difference = (model.logits(other) - scores).abs().amax({0, 2});
    for (std::int64_t i = 0; i < 16; ++i) {
      if (i < changed) {
        EXPECT_EQ(difference[i].item<float>(), 0.0F) << changed << " is seen at " << i;
      } else {
        EXPECT_GT(difference[i].item<float>(), 0.0F) << changed << " is not seen at " << i;
      }
    }
  }
}

TEST_F(Model, KnowsNothingAtFirst) {
  Gpt model(kShape);
  const auto loss = model.loss(random_tokens(8, 16), random_tokens(8, 16)).item<double>();
  EXPECT_NEAR(loss, std::log(50.0), 0.1);
}

TEST_F(Model, IsTheSameForTheSameSeed) {
  const Gpt first(kShape);
  at::manual_seed(1);
  const Gpt again(kShape);
  at::manual_seed(2);
  const Gpt other(kShape);
  for (const auto& item : first.named_parameters()) {
    EXPECT_TRUE(item.value().equal(again.named_parameters()[item.key()])) << item.key();
  }
  EXPECT_FALSE(first.parameters()[0].equal(other.parameters()[0]));
}

TEST_F(Model, HasTheParametersOfGpt2AtItsShape) {
  // GPT-2 124M has 124,439,808; 47 more rows of the embedding make 124,475,904. Counted from the
  // formula at full size and from a real model at a smaller one, which takes no half gigabyte.
  const auto formula = [](const GptShape& shape) {
    const std::int64_t width = shape.width;
    const std::int64_t block = 12 * width * width + 13 * width;
    return (shape.vocabulary + shape.context) * width + shape.layers * block + 2 * width;
  };
  EXPECT_EQ(Gpt(kShape).parameter_count(), formula(kShape));
  EXPECT_EQ(
      formula({.vocabulary = 50257, .layers = 12, .heads = 12, .width = 768, .context = 1024}),
      124'439'808);
  EXPECT_EQ(
      formula({.vocabulary = 50304, .layers = 12, .heads = 12, .width = 768, .context = 1024}),
      124'475'904);
}

TEST_F(Model, GivesEveryParameterAGradientAndFaultsTheirDefault) {
  Gpt model(kShape);
  model.loss(random_tokens(2, 16), random_tokens(2, 16)).backward();
  std::set<std::string> names;
  for (const auto& item : model.named_parameters()) {
    names.insert(item.key());
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
  }
  EXPECT_TRUE(names.count(std::string(kDefaultFaultParam)));
  EXPECT_TRUE(names.count("blocks.1.mlp.output.bias"));
  EXPECT_EQ(names.size(), model.parameters().size())
      << "the output layer has no weights of its own";
}

TEST_F(Model, DropsOutInTrainingAlone) {
  GptShape shape = kShape;
  shape.dropout = 0.5;
  Gpt model(shape);
  const auto tokens = random_tokens(2, 16);
  EXPECT_FALSE(model.logits(tokens).equal(model.logits(tokens)));
  model.eval();
  EXPECT_TRUE(model.logits(tokens).equal(model.logits(tokens)));
}

TEST_F(Model, RefusesHeadsThatDoNotDivideTheWidth) {
  GptShape shape = kShape;
  shape.heads = 5;
  EXPECT_THROW(Gpt{shape}, std::invalid_argument);
}

}  // namespace
}  // namespace char_gpt
