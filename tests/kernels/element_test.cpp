#include "kernels/element.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels {
namespace {

using test::decode;
using test::inf_bits;
using test::layout_of;
using test::sign_bit;

template <DType kDType>
void expect_classified(std::uint64_t wide) {
  const auto bits = static_cast<Bits<kDType>>(wide);
  const std::uint64_t magnitude = wide & ~sign_bit(kDType);
  const ElementClass expected = magnitude > inf_bits(kDType)    ? ElementClass::nan
                                : magnitude == inf_bits(kDType) ? ElementClass::infinity
                                : magnitude == 0                ? ElementClass::zero
                                : magnitude < std::uint64_t{1} << layout_of(kDType).mantissa_bits
                                    ? ElementClass::subnormal
                                    : ElementClass::normal;
  ASSERT_EQ(classify<kDType>(bits), expected) << std::hex << wide;
  if (expected < ElementClass::infinity) {
    ASSERT_EQ(static_cast<long double>(value<kDType>(bits)), decode(kDType, wide))
        << std::hex << wide;
  }
}

TEST(Element, EveryHalfPrecisionPatternIsClassifiedAndWorthWhatItShould) {
  for (std::uint64_t bits = 0; bits < 0x10000; ++bits) {
    expect_classified<DType::f16>(bits);
    expect_classified<DType::bf16>(bits);
  }
}

TEST(Element, WiderPatternsAreClassifiedAroundEveryBoundaryAndAtRandom) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 200'000; ++i) {
    expect_classified<DType::f32>(random() & 0xffffffff);
    expect_classified<DType::f64>(random());
  }
  for (const std::uint64_t sign : {0ull, ~0ull}) {
    for (const int step : {-1, 0, 1}) {
      const auto around = [&](DType dtype, std::uint64_t bits) {
        return (bits + static_cast<std::uint64_t>(step)) | (sign & sign_bit(dtype));
      };
      expect_classified<DType::f32>(around(DType::f32, 0x00800000));
      expect_classified<DType::f32>(around(DType::f32, 0x7f800000));
      expect_classified<DType::f64>(around(DType::f64, 0x0010000000000000));
      expect_classified<DType::f64>(around(DType::f64, 0x7ff0000000000000));
    }
  }
}

TEST(Element, HalfPrecisionInfinityBecomesInfinity) {
  EXPECT_EQ(value<DType::f16>(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(value<DType::f16>(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(value<DType::f16>(0x7c01)));
  EXPECT_TRUE(std::isnan(value<DType::f16>(0xffff)));
}

TEST(Element, AccumulateCountsEachKindAndKeepsTheFirst) {
  TensorStats stats;
  accumulate<DType::f32>(stats, 0x40400000, 10);  // 3
  accumulate<DType::f32>(stats, 0x80000000, 11);  // -0
  accumulate<DType::f32>(stats, 0xff800000, 12);  // -Inf
  accumulate<DType::f32>(stats, 0x7fc00000, 13);  // NaN
  accumulate<DType::f32>(stats, 0x7f800000, 14);  // +Inf
  accumulate<DType::f32>(stats, 0xc0800000, 15);  // -4
  accumulate<DType::f32>(stats, 0x00000001, 16);
  EXPECT_EQ(stats.numel, 7);
  EXPECT_EQ(stats.nan, 1);
  EXPECT_EQ(stats.pos_inf, 1);
  EXPECT_EQ(stats.neg_inf, 1);
  EXPECT_EQ(stats.zero, 1);
  EXPECT_EQ(stats.subnormal, 1);
  EXPECT_EQ(stats.first_nonfinite, 12);
  EXPECT_EQ(stats.first_kind, static_cast<int>(NonfiniteKind::neg_inf));
  EXPECT_EQ(stats.sum, -1 + 0x1p-149);
  EXPECT_EQ(stats.sum_abs, 7 + 0x1p-149);
  EXPECT_EQ(stats.norm(), 5);
  EXPECT_EQ(stats.abs_max, 4);
  EXPECT_EQ(stats.abs_min_nonzero, 0x1p-149);
}

TEST(Element, AccumulateGoesThroughEveryScaleWithoutOverOrUnderflow) {
  const auto bits = [](double value) { return __builtin_bit_cast(std::uint64_t, value); };
  TensorStats stats;
  accumulate<DType::f64>(stats, bits(3e-320), 0);
  EXPECT_EQ(stats.scale_exp, -600);
  accumulate<DType::f64>(stats, bits(4e-320), 1);
  EXPECT_NEAR(stats.norm() / 5e-320, 1, 1e-3);  // a subnormal norm has few digits
  accumulate<DType::f64>(stats, bits(-3.0), 2);
  EXPECT_EQ(stats.scale_exp, 0);
  EXPECT_EQ(stats.norm(), 3);
  accumulate<DType::f64>(stats, bits(-4e300), 3);
  EXPECT_EQ(stats.scale_exp, 600);
  accumulate<DType::f64>(stats, bits(3e300), 4);
  EXPECT_NEAR(stats.norm() / 5e300, 1, 1e-15);
  EXPECT_NEAR(stats.total() / -1e300, 1, 1e-15);
}

}  // namespace
}  // namespace gradvane::kernels
