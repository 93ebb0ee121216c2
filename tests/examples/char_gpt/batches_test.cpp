#include "examples/char_gpt/training/batches.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace char_gpt {
namespace {

std::vector<std::uint8_t> counting(std::size_t count) {
  std::vector<std::uint8_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), std::uint8_t{0});
  return tokens;
}

TEST(Batches, TargetsAreTheTokensOneLater) {
  const auto tokens = counting(20);
  const std::vector<std::int64_t> starts = {0, 15, 7};
  const auto batch = make_batch(tokens, starts, 4, at::kCPU);
  ASSERT_EQ(batch.tokens.sizes(), (std::vector<std::int64_t>{3, 4}));
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const auto expected = starts[static_cast<std::size_t>(row)] + i;
      EXPECT_EQ(batch.tokens[row][i].item<std::int64_t>(), expected);
      EXPECT_EQ(batch.targets[row][i].item<std::int64_t>(), expected + 1);
    }
  }
}

TEST(Batches, AreTheSameForTheSameSeedAndReachBothEnds) {
  const auto tokens = counting(8);
  RandomBatches first(tokens, 16, 5, at::kCPU, 1);
  RandomBatches again(tokens, 16, 5, at::kCPU, 1);
  std::int64_t smallest = 255;
  std::int64_t largest = 0;
  for (int i = 0; i < 50; ++i) {
    const auto batch = first.next();
    EXPECT_TRUE(batch.tokens.equal(again.next().tokens));
    smallest = std::min(smallest, batch.tokens.min().item<std::int64_t>());
    largest = std::max(largest, batch.targets.max().item<std::int64_t>());
  }
  EXPECT_EQ(smallest, 0);
  EXPECT_EQ(largest, 7);
}

TEST(Batches, RefuseATextThatIsTooShort) {
  EXPECT_THROW(RandomBatches(counting(5), 1, 5, at::kCPU, 1), std::invalid_argument);
  EXPECT_NO_THROW(RandomBatches(counting(6), 1, 5, at::kCPU, 1));
}

}  // namespace
}  // namespace char_gpt
