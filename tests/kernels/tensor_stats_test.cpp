#include "kernels/tensor_stats.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/element.hpp"
#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels {
namespace {

using test::expect_of;
using test::TensorData;

TensorStats stats_of(const TensorData& tensor, std::int64_t begin, std::int64_t end) {
  TensorStats stats;
  for (std::int64_t i = begin; i < end; ++i) accumulate<DType::f64>(stats, tensor.bits(i), i);
  return stats;
}

// Magnitudes of every scale, with faults: the parts that are merged have scales of their own.
TensorData mixed_scales(std::int64_t numel) {
  std::mt19937_64 random(3);
  TensorData tensor(DType::f64, numel);
  test::fill_normal(tensor, random, -1022, 1023);
  for (int i = 0; i < 20; ++i) {
    tensor.set_bits(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(numel)),
                    i % 2 == 0 ? test::nan_bits(DType::f64) : random() % 100);
  }
  return tensor;
}

TEST(TensorStats, AnEmptyPartChangesNothing) {
  const TensorData tensor = mixed_scales(50);
  const TensorStats all = stats_of(tensor, 0, 50);
  TensorStats after = all;
  merge(after, TensorStats{});
  EXPECT_TRUE(test::same_bits(after, all));
  TensorStats before;
  merge(before, all);
  EXPECT_TRUE(test::same_bits(before, all));
}

TEST(TensorStats, APartOfZerosDoesNotLiftTheScaleOfTinyOnes) {
  TensorStats zeros;
  accumulate<DType::f64>(zeros, 0, 0);
  TensorStats tiny;
  accumulate<DType::f64>(tiny, 5, 1);
  const double norm = tiny.norm();
  TensorStats zeros_first = zeros;
  merge(zeros_first, tiny);
  merge(tiny, zeros);
  EXPECT_EQ(zeros_first.norm(), norm);
  EXPECT_EQ(tiny.norm(), norm);
  EXPECT_EQ(tiny.scale_exp, -600);
}

TEST(TensorStats, EveryGroupingHasTheSameCountsExtremaIndexAndScaleAndTheSameSumsUpToRounding) {
  constexpr std::int64_t kNumel = 300;
  const TensorData tensor = mixed_scales(kNumel);
  const test::Expected expected = expect_of(tensor);
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    // Cut at random, then merge neighbours at random until one is left.
    std::vector<TensorStats> parts;
    for (std::int64_t begin = 0; begin < kNumel;) {
      const auto length = static_cast<std::int64_t>(random() % 40);
      const std::int64_t end = std::min(kNumel, begin + length);
      parts.push_back(stats_of(tensor, begin, end));
      begin = end;
    }
    while (parts.size() > 1) {
      const auto at = static_cast<std::ptrdiff_t>(random() % (parts.size() - 1));
      merge(parts[static_cast<std::size_t>(at)], parts[static_cast<std::size_t>(at) + 1]);
      parts.erase(parts.begin() + at + 1);
    }
    const TensorStats& merged = parts[0];
    EXPECT_EQ(merged.scale_exp, scale_exp_for(expected.exact.abs_max));
    test::expect_sums(merged, expected, 1e-13, 1e-13);
    EXPECT_TRUE(test::same_bits(test::without_sums(merged), expected.exact));
  }
}

TEST(TensorStats, TheNormOfNothingIsZero) {
  EXPECT_EQ(TensorStats{}.norm(), 0);
  EXPECT_EQ(TensorStats{}.total(), 0);
  EXPECT_EQ(TensorStats{}.mean_magnitude(), 0);
  EXPECT_EQ(TensorStats{}.finite(), 0);
}

}  // namespace
}  // namespace gradvane::kernels
