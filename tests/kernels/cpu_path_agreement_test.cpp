// The same bits whatever the path, the split of the blocks, the order and the threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <thread>

#include "kernels/cpu_pass.hpp"
#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels {
namespace {

using test::expect_of;
using test::fill_normal;
using test::inf_bits;
using test::nan_bits;
using test::read;
using test::same_bits;
using test::sign_bit;
using test::TensorData;

std::vector<CpuPath> vector_paths() {
  std::vector<CpuPath> paths;
  for (const CpuPath path : {CpuPath::avx2, CpuPath::avx512}) {
    if (supported(path)) paths.push_back(path);
  }
  return paths;
}

void expect_paths_agree(const TensorData& tensor) {
  const TensorStats expected = read(CpuPath::scalar, tensor);
  for (const CpuPath path : vector_paths()) {
    const TensorStats actual = read(path, tensor);
    ASSERT_TRUE(same_bits(actual, expected)) << name(path) << " " << testing::PrintToString(actual)
                                             << "\nscalar " << testing::PrintToString(expected);
  }
}

class CpuPaths : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (vector_paths().empty()) GTEST_SKIP() << "this processor has only the scalar path";
  }
};

TEST_P(CpuPaths, GiveTheSameBitsForDataOfEveryKindAndSize) {
  const DType dtype = GetParam();
  std::mt19937_64 random(21);
  // Exponents: ordinary, both sides of each limit between two ways of summing, and all at once.
  const std::pair<int, int> bands[] = {{-10, 3},     {38, 39},   {38, 40},      {38, 42},
                                       {-45, -41},   {-45, -40}, {-45, -38},    {498, 499},
                                       {498, 500},   {480, 520}, {-503, -501},  {-503, -500},
                                       {-520, -480}, {-60, 60},  {-1100, 1100}, {-1100, -900}};
  for (int trial = 0; trial < 600; ++trial) {
    SCOPED_TRACE(trial);
    const auto bound = trial % 30 == 0 ? 60'000u : 1400u;
    TensorData tensor(dtype, static_cast<std::int64_t>(random() % bound), random() % 64);
    const auto& [low, high] = bands[static_cast<std::size_t>(trial) % std::size(bands)];
    fill_normal(tensor, random, low, high);
    const auto numel = static_cast<std::uint64_t>(tensor.numel());
    for (std::uint64_t fault = numel == 0 ? 0 : random() % 12; fault > 0; --fault) {
      const std::uint64_t kinds[] = {0, sign_bit(dtype), inf_bits(dtype), nan_bits(dtype), 2};
      tensor.set_bits(static_cast<std::int64_t>(random() % numel), kinds[random() % 5]);
    }
    expect_paths_agree(tensor);
  }
}

// Runs that change their kind from one to the next: harmless, faulty, too large, tiny, zero.
TEST_P(CpuPaths, GiveTheSameBitsWhereRunsOfDifferentKindsFollowEachOther) {
  const DType dtype = GetParam();
  std::mt19937_64 random(22);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    TensorData tensor(dtype, 20'000 + trial);
    int kind = 0;
    tensor.fill_bits([&](std::int64_t i) -> std::uint64_t {
      if (i % 128 == 0 && random() % 2 == 0) kind = static_cast<int>(random() % 6);
      const std::uint64_t noise = random();
      const std::uint64_t sign = noise >> 63 != 0 ? sign_bit(dtype) : 0;
      switch (kind) {
        case 0:
          return sign | test::encode(dtype, 0.01 + static_cast<double>(noise % 1000));
        case 1:
          return sign | test::encode(dtype, 1e30 * static_cast<double>(noise % 100));
        case 2:
          return sign | test::encode(dtype, 1e-30 * static_cast<double>(noise % 100));
        case 3:
          return noise % 50 == 0 ? noise : 0;
        case 4:
          return sign | noise % 20;
        default:
          return 0;
      }
    });
    expect_paths_agree(tensor);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryDtype, CpuPaths, testing::ValuesIn(test::kAllDTypes),
                         [](const auto& given) { return std::string(name(given.param)); });

class EveryPattern : public testing::TestWithParam<std::tuple<CpuPath, DType>> {
 protected:
  void SetUp() override {
    if (!supported(std::get<0>(GetParam()))) GTEST_SKIP() << "this processor lacks the path";
  }
};

TEST_P(EveryPattern, OfSixteenBitsIsCountedAmongAllTheOthers) {
  const auto [path, dtype] = GetParam();
  TensorData tensor(dtype, 0x10000);
  tensor.fill_bits([](std::int64_t i) { return static_cast<std::uint64_t>(i); });
  std::mt19937_64 random(23);
  for (int shuffle = 0; shuffle < 5; ++shuffle) {
    const TensorStats actual = read(path, tensor);
    const test::Expected expected = expect_of(tensor);
    test::expect_sums(actual, expected, 2e-6, 1e-6);
    EXPECT_EQ(test::without_sums(actual), expected.exact);
    for (std::int64_t i = tensor.numel() - 1; i > 0; --i) {
      const auto other = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(i + 1));
      const std::uint64_t bits = tensor.bits(i);
      tensor.set_bits(i, tensor.bits(other));
      tensor.set_bits(other, bits);
    }
  }
}

// On its own, a pattern decides alone which way its run goes.
TEST_P(EveryPattern, OfSixteenBitsIsCountedOnItsOwn) {
  const auto [path, dtype] = GetParam();
  TensorData tensor(dtype, 1);
  const TensorShape shape = tensor.shape();
  CpuPass pass(ChunkPlan({&shape, 1}), path);
  const void* data = tensor.data();
  for (std::uint64_t bits = 0; bits < 0x10000; ++bits) {
    tensor.set_bits(0, bits);
    const TensorStats actual = read(pass, {&data, 1})[0];
    const TensorStats expected = expect_of(tensor).whole();
    // Only an fp32 square can be rounded: of a number with more than twelve digits. None here.
    ASSERT_EQ(actual, expected) << std::hex << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryPath, EveryPattern,
                         testing::Combine(testing::ValuesIn(test::kAllPaths),
                                          testing::Values(DType::f16, DType::bf16)),
                         [](const auto& given) {
                           return std::string(name(std::get<0>(given.param))) + "_" +
                                  std::string(name(std::get<1>(given.param)));
                         });

struct Model {
  std::vector<TensorData> tensors;
  std::vector<TensorShape> shapes;
  std::vector<const void*> data;
};

Model model() {
  Model model;
  std::mt19937_64 random(24);
  for (int i = 0; i < 60; ++i) {
    const auto bound = i % 12 == 0 ? 400'000u : 9000u;
    model.tensors.emplace_back(test::kAllDTypes[i % 4], static_cast<std::int64_t>(random() % bound),
                               random() % 64);
    fill_normal(model.tensors.back(), random, -60, 60);
  }
  for (const TensorData& tensor : model.tensors) {
    model.shapes.push_back(tensor.shape());
    model.data.push_back(tensor.data());
  }
  return model;
}

void expect_same(const std::vector<TensorStats>& actual, const std::vector<TensorStats>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(same_bits(actual[i], expected[i])) << "tensor " << i;
  }
}

TEST(CpuPassBlocks, GiveTheSameBitsInAnyOrderAndSplit) {
  const Model model = gradvane::kernels::model();
  CpuPass pass{ChunkPlan(model.shapes)};
  ASSERT_GT(pass.blocks(), 50);
  const std::vector<TensorStats> expected = read(pass, model.data);

  std::mt19937_64 random(25);
  for (int trial = 0; trial < 5; ++trial) {
    std::vector<int> order(static_cast<std::size_t>(pass.blocks()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const int block : order) pass.run_blocks(model.data, block, block + 1);
    std::vector<TensorStats> stats(model.shapes.size());
    pass.finish(stats);
    expect_same(stats, expected);
  }
}

TEST(CpuPassBlocks, GiveTheSameBitsOnAnyNumberOfThreads) {
  const Model model = gradvane::kernels::model();
  CpuPass pass{ChunkPlan(model.shapes)};
  const std::vector<TensorStats> expected = read(pass, model.data);
  for (const int threads : {2, 3, 5, 8}) {
    std::atomic<int> next{0};
    {
      std::vector<std::jthread> workers;
      for (int i = 0; i < threads; ++i) {
        workers.emplace_back([&] {
          for (int block = 0; (block = next.fetch_add(3)) < pass.blocks();) {
            pass.run_blocks(model.data, block, std::min(block + 3, pass.blocks()));
          }
        });
      }
    }
    std::vector<TensorStats> stats(model.shapes.size());
    pass.finish(stats);
    expect_same(stats, expected);
  }
}

}  // namespace
}  // namespace gradvane::kernels
