// Vectors with anything in them: what is counted is exact, sums are those of the plain definition up to rounding.
#include "kernels/device/careful.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace gradvane::kernels::device {
namespace {

struct HostLane {
  static void prefetch_group(const std::byte*, int) {}
  static Vector load(const std::byte* at) {
    Vector vector;
    std::memcpy(&vector, at, sizeof(vector));
    return vector;
  }
};

constexpr int kVectors = 8;
constexpr int kBytes = kVectors * static_cast<int>(sizeof(Vector));

/// Bits at which something changes: of the largest magnitudes that each scale takes, and of the classes.
template <DType dtype>
std::vector<Bits<dtype>> edges() {
  std::vector<Bits<dtype>> found{0, 1, Format<dtype>::kMinNormal, Format<dtype>::kInf};
  const int shift = dtype == DType::f32 ? 23 : dtype == DType::bf16 ? 7 : 10;
  const int bias = dtype == DType::f16 ? 15 : 127;
  for (const int exponent : {-120, -100, -40, -14, 0, 15, 40, 100, 127})
    if (exponent + bias > 0 && exponent < bias + 1)
      found.push_back(static_cast<Bits<dtype>>((exponent + bias) << shift));
  const std::size_t whole = found.size();
  for (std::size_t i = 0; i < whole; ++i) {
    found.push_back(static_cast<Bits<dtype>>(found[i] + 1));
    if (found[i] != 0) found.push_back(static_cast<Bits<dtype>>(found[i] - 1));
  }
  return found;
}

template <DType dtype>
void expect_alike(const std::vector<Bits<dtype>>& elements) {
  alignas(sizeof(Vector)) std::array<std::byte, kBytes> data{};
  std::memcpy(data.data(), elements.data(), kBytes);
  TensorStats plain;
  for (std::size_t i = 0; i < elements.size(); ++i)
    accumulate<dtype>(plain, elements[i], static_cast<std::int64_t>(i));
  TensorStats stats;
  (void)read_carefully<dtype, HostLane>(data.data(), data.data(), kVectors, sizeof(Vector), stats);
  ASSERT_EQ(stats.nan, plain.nan);
  ASSERT_EQ(stats.pos_inf, plain.pos_inf);
  ASSERT_EQ(stats.neg_inf, plain.neg_inf);
  ASSERT_EQ(stats.zero, plain.zero);
  ASSERT_EQ(stats.subnormal, plain.subnormal);
  ASSERT_EQ(stats.first_nonfinite, plain.first_nonfinite);
  ASSERT_EQ(stats.first_kind, plain.first_kind);
  ASSERT_EQ(stats.abs_max, plain.abs_max);
  ASSERT_EQ(stats.abs_min_nonzero, plain.abs_min_nonzero);
  ASSERT_EQ(stats.scale_exp, plain.scale_exp);
  ASSERT_NEAR(stats.sum, plain.sum, 1e-6 * plain.sum_abs);
  ASSERT_NEAR(stats.sum_abs, plain.sum_abs, 1e-6 * plain.sum_abs);
  ASSERT_NEAR(stats.sum_sq, plain.sum_sq, 1e-6 * plain.sum_sq);
}

template <DType dtype>
void expect_alike_at_random() {
  std::mt19937_64 random(5);
  constexpr std::size_t kElements = kBytes / size_in_bytes(dtype);
  const auto some = edges<dtype>();
  for (int round = 0; round < 20'000; ++round) {
    // Anything; one exponent and those below it; numbers around the edges; all the same.
    const int kind = round % 4;
    const auto one = static_cast<Bits<dtype>>(random());
    std::vector<Bits<dtype>> elements(kElements);
    for (auto& bits : elements) {
      const auto any = static_cast<Bits<dtype>>(random());
      const auto sign = static_cast<Bits<dtype>>(any & ~Format<dtype>::kAbsMask);
      const auto up_to = static_cast<std::uint64_t>(one & Format<dtype>::kAbsMask) + 1;
      bits = kind == 0   ? any
             : kind == 1 ? static_cast<Bits<dtype>>(random() % up_to | sign)
             : kind == 2 ? static_cast<Bits<dtype>>(some[random() % some.size()] | sign)
                         : one;
    }
    expect_alike<dtype>(elements);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Careful, AnyBitsAreCountedExactlyAndAddedUpToRounding) {
  expect_alike_at_random<DType::f32>();
  expect_alike_at_random<DType::f16>();
  expect_alike_at_random<DType::bf16>();
}

template <DType dtype>
bool is_special(Bits<dtype> bits, Bits<dtype> others) {
  std::vector<Bits<dtype>> elements(kBytes / size_in_bytes(dtype), others);
  elements[5] = bits;
  TensorStats stats;
  return read_carefully<dtype, HostLane>(reinterpret_cast<const std::byte*>(elements.data()),
                                         reinterpret_cast<const std::byte*>(elements.data()),
                                         kVectors, sizeof(Vector), stats);
}

TEST(Careful, WhatTheFastPathTakesIsNotSpecial) {
  EXPECT_FALSE(is_special<DType::f32>(0x3f800000, 0x3f800000));
  EXPECT_FALSE(is_special<DType::f32>(0, 0x3f800000)) << "it counts zeros";
  EXPECT_FALSE(is_special<DType::f32>(0x00800000, 0x3f800000)) << "small beside large ones";
  EXPECT_FALSE(is_special<DType::f16>(1, 0x3c00)) << "it counts fp16's subnormal numbers";
  EXPECT_FALSE(is_special<DType::f16>(0x7bff, 0x3c00));
}

TEST(Careful, WhatTheFastPathRefusesIsSpecial) {
  EXPECT_TRUE(is_special<DType::f32>(0x7fc00000, 0x3f800000)) << "NaN";
  EXPECT_TRUE(is_special<DType::bf16>(0xff80, 0x3f80)) << "-Inf";
  EXPECT_TRUE(is_special<DType::f16>(0x7c01, 0x3c00)) << "NaN";
  EXPECT_TRUE(is_special<DType::bf16>(1, 0x3f80)) << "subnormal";
  EXPECT_TRUE(is_special<DType::f32>(0x007fffff, 0x3f800000)) << "subnormal";
  EXPECT_TRUE(is_special<DType::f32>(0x60000000, 0x3f800000)) << "2^65, squared";
  EXPECT_TRUE(is_special<DType::f32>(0x20000000, 0x20000000)) << "2^-63, squared";
}

TEST(Careful, AWarpAsksForTheLinesThatItsLanesWillLoadAndForNoOther) {
  constexpr int kLanes = 32;
  for (const int stride : {512, 4096}) {
    std::set<int> loaded, asked_for;
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int v = 0; v < kGroup; ++v)
        loaded.insert((v * stride + lane * static_cast<int>(sizeof(Vector))) / 128 * 128);
      asked_for.insert(line_of_group(lane, stride));
    }
    EXPECT_EQ(asked_for, loaded);
  }
}

TEST(Careful, WhatWasReadBeforeStays) {
  constexpr std::size_t kLater = 1600;
  const std::array<std::uint16_t, 8> elements{0x3f80, 0x7fc0, 0, 0, 0, 0, 0, 0};
  alignas(sizeof(Vector)) std::array<std::byte, kLater + sizeof(Vector)> data{};
  for (const std::size_t at : {std::size_t{0}, kLater})
    std::memcpy(&data[at], elements.data(), sizeof(elements));
  TensorStats stats;
  const auto read = [&](std::size_t at) {
    (void)read_carefully<DType::bf16, HostLane>(data.data(), &data[at], 1, 0, stats);
  };
  read(kLater);
  EXPECT_EQ(stats.first_nonfinite, 801);
  read(0);
  EXPECT_EQ(stats.nan, 2);
  EXPECT_EQ(stats.zero, 12);
  EXPECT_EQ(stats.sum, 2);
  EXPECT_EQ(stats.first_nonfinite, 1) << "the lower index";
}

}  // namespace
}  // namespace gradvane::kernels::device
