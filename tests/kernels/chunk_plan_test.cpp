#include "kernels/chunk_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/cpu_pass.hpp"

namespace gradvane::kernels {
namespace {

// Sizes as models have them: a few huge tensors, many tiny ones, every dtype, some empty.
std::vector<TensorShape> zipf_shapes(int count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TensorShape> shapes;
  for (int i = 0; i < count; ++i) {
    const auto rank = static_cast<double>(random() % static_cast<std::uint64_t>(count) + 1);
    const auto numel = static_cast<std::int64_t>(4e6 / std::pow(rank, 1.1)) +
                       static_cast<std::int64_t>(random() % 3) - 1;
    shapes.push_back({std::max<std::int64_t>(0, random() % 20 == 0 ? 0 : numel),
                      static_cast<DType>(random() % kDTypes)});
  }
  return shapes;
}

std::vector<TensorPart> parts_of(const ChunkPlan& plan, int block) {
  std::vector<TensorPart> parts;
  plan.view().for_each_part(block, [&](const TensorPart& part) { parts.push_back(part); });
  return parts;
}

std::int64_t cost_of(const TensorPart& part) {
  const TensorShape shape{part.end - part.begin, part.dtype};
  return shape.numel * size_in_bytes(shape.dtype) +
         chunk_count(shape) * ChunkPlan::kChunkOverheadBytes;
}

// The properties that the pass and its GPU twin rest on.
void expect_sound(const ChunkPlan& plan) {
  ASSERT_LE(plan.blocks(), ChunkPlan::kMaxBlocks);
  std::vector<std::int64_t> covered(plan.tensors().size(), 0);
  std::int64_t total_cost = 0;
  std::int64_t largest_block = 0;
  std::int64_t last_tensor = -1;
  for (int block = 0; block < plan.blocks(); ++block) {
    int partial_of[2] = {0, 0};
    std::int64_t block_cost = 0;
    const std::vector<TensorPart> parts = parts_of(plan, block);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const TensorPart& part = parts[i];
      const auto tensor = static_cast<std::size_t>(part.tensor);
      ASSERT_GE(part.tensor, last_tensor);
      last_tensor = part.tensor;
      ASSERT_EQ(part.dtype, plan.tensors()[tensor].dtype);
      ASSERT_EQ(part.numel, plan.tensors()[tensor].numel);
      ASSERT_EQ(part.begin, covered[tensor]) << "a gap or an overlap in tensor " << tensor;
      ASSERT_LT(part.begin, part.end);
      ASSERT_EQ(part.begin % chunk_elements(part.dtype), 0);
      covered[tensor] = part.end;
      if (!part.whole()) {
        ++partial_of[part.partial()];
        ASSERT_EQ(part.partial() == 0, part.begin != 0);
        ASSERT_EQ(part.partial() == 0 ? i : parts.size() - 1 - i, 0u);
      }
      block_cost += cost_of(part);
    }
    ASSERT_LE(partial_of[0], 1);
    ASSERT_LE(partial_of[1], 1);
    total_cost += block_cost;
    largest_block = std::max(largest_block, block_cost);
  }
  for (std::size_t i = 0; i < covered.size(); ++i) {
    ASSERT_EQ(covered[i], plan.tensors()[i].numel) << "tensor " << i;
  }
  if (plan.blocks() > 0) {
    // Even, but for the chunk that straddles the end of a share.
    ASSERT_LE(largest_block, total_cost / plan.blocks() + 1 + ChunkPlan::kChunkBytes +
                                 ChunkPlan::kChunkOverheadBytes);
  }
}

TEST(ChunkPlan, CoversEveryElementOnceForOneToTenThousandTensors) {
  for (const int count : {1, 2, 3, 7, 10, 50, 100, 528, 529, 1000, 3000, 10'000}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      SCOPED_TRACE(testing::Message() << count << " tensors, seed " << seed);
      expect_sound(ChunkPlan(zipf_shapes(count, seed)));
    }
  }
}

TEST(ChunkPlan, CoversEveryElementOnceAroundEveryChunkBoundary) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const std::int64_t chunk = chunk_elements(dtype);
    for (const std::int64_t chunks : {std::int64_t{1}, std::int64_t{2}, std::int64_t{527},
                                      std::int64_t{528}, std::int64_t{529}, std::int64_t{5280}}) {
      for (const std::int64_t extra : {-1, 0, 1}) {
        const TensorShape shape{chunks * chunk + extra, dtype};
        expect_sound(ChunkPlan({&shape, 1}));
        expect_sound(ChunkPlan(std::vector<TensorShape>(3, shape)));
      }
    }
  }
}

TEST(ChunkPlan, HoldsTensorsOfMoreThanTwoToTheThirtyOneElements) {
  const std::int64_t huge = (std::int64_t{1} << 40) + 12345;
  const std::vector<TensorShape> shapes = {
      {7, DType::f32}, {huge, DType::bf16}, {0, DType::f32}, {huge, DType::f64}, {1, DType::f64}};
  const ChunkPlan plan(shapes);
  EXPECT_EQ(plan.blocks(), ChunkPlan::kMaxBlocks);
  EXPECT_EQ(plan.bytes(), 7 * 4 + huge * 2 + huge * 8 + 8);
  expect_sound(plan);
}

TEST(ChunkPlan, HoldsTwoToTheSixtyTwoBytesAndRefusesMore) {
  const TensorShape most{std::int64_t{1} << 59, DType::f64};
  expect_sound(ChunkPlan({&most, 1}));
  const std::vector<TensorShape> too_many = {most, {1, DType::f16}};
  EXPECT_THROW(ChunkPlan{too_many}, std::invalid_argument);
}

TEST(ChunkPlan, NothingToReadNeedsNoBlock) {
  EXPECT_EQ(ChunkPlan({}).blocks(), 0);
  const std::vector<TensorShape> empty(5, TensorShape{0, DType::f16});
  const ChunkPlan plan(empty);
  EXPECT_EQ(plan.blocks(), 0);
  EXPECT_EQ(plan.bytes(), 0);
  expect_sound(plan);
}

TEST(ChunkPlan, LittleWorkIsNotSpreadOverManyBlocks) {
  const std::vector<TensorShape> biases(10, TensorShape{64, DType::f32});
  EXPECT_EQ(ChunkPlan(biases).blocks(), 1);
  const std::vector<TensorShape> tiny(10'000, TensorShape{64, DType::f32});
  EXPECT_GT(ChunkPlan(tiny).blocks(), 100);
}

TEST(ChunkPlan, RefusesANegativeSizeAndAnUnknownDtypeByName) {
  const std::vector<TensorShape> negative = {{1, DType::f32}, {-3, DType::f32}};
  try {
    const ChunkPlan plan(negative);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "ChunkPlan: tensor 1 has -3 elements");
  }
  const TensorShape unknown{1, static_cast<DType>(9)};
  EXPECT_THROW(ChunkPlan({&unknown, 1}), std::invalid_argument);
}

TEST(ChunkPlan, ACopyOutlivesItsOriginal) {
  auto original = std::make_unique<ChunkPlan>(zipf_shapes(100, 1));
  const ChunkPlan copy = *original;
  original.reset();
  expect_sound(copy);
}

TEST(ChunkPlan, WithItsPassStaysWithinTheScratchBound) {
  for (const int count : {1, 100, 10'000}) {
    const ChunkPlan plan(zipf_shapes(count, 2));
    const CpuPass pass(plan);
    EXPECT_LE(plan.memory_bytes() + pass.memory_bytes(), 128 * count + (1 << 20));
  }
}

}  // namespace
}  // namespace gradvane::kernels
