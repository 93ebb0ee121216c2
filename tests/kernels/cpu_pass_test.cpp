// Each path against the reference of tensor_data.hpp, which shares no code with it.
#include "kernels/cpu_pass.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>

#include "kernels/sum_scale.hpp"
#include "tests/kernels/tensor_data.hpp"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace gradvane::kernels {
namespace {

using test::expect_of;
using test::Expected;
using test::fill_normal;
using test::inf_bits;
using test::nan_bits;
using test::read;
using test::same_bits;
using test::sign_bit;
using test::TensorData;

// Short fp32 runs: 16 additions a lane and 2 folds, each off by at most 2^-24 (cpu_part.hpp), so
// 18 * 2^-24 of a sum of squares and half of it in the norm. fp64: rounding only.
double norm_tolerance(DType dtype) { return dtype == DType::f64 ? 1e-13 : 9 * 0x1p-24 + 1e-12; }
double sum_tolerance(DType dtype) { return dtype == DType::f64 ? 1e-13 : 18 * 0x1p-24 + 1e-12; }

void expect_agrees(const TensorStats& actual, const TensorData& tensor) {
  const Expected expected = expect_of(tensor);
  TensorStats exact = actual;
  exact.sum = exact.sum_sq = 0;
  exact.scale_exp = 0;
  EXPECT_EQ(exact, expected.exact);
  EXPECT_EQ(actual.scale_exp, tensor.dtype() == DType::f64 ? scale_exp_for(actual.abs_max) : 0);
  const long double sum = std::ldexp(static_cast<long double>(actual.sum), actual.scale_exp);
  const long double sum_sq =
      std::ldexp(static_cast<long double>(actual.sum_sq), 2 * actual.scale_exp);
  EXPECT_LE(std::fabs(sum - expected.sum), sum_tolerance(tensor.dtype()) * expected.sum_abs);
  if (expected.sum_sq == 0) {
    EXPECT_EQ(sum_sq, 0);
  } else {
    const long double ratio = std::sqrt(sum_sq / expected.sum_sq);
    EXPECT_LE(std::fabs(ratio - 1), norm_tolerance(tensor.dtype()));
  }
}

class CpuPassOn : public testing::TestWithParam<std::tuple<CpuPath, DType>> {
 protected:
  void SetUp() override {
    if (!supported(path())) GTEST_SKIP() << "this processor has no " << name(path());
  }
  static CpuPath path() { return std::get<0>(GetParam()); }
  static DType dtype() { return std::get<1>(GetParam()); }
  static std::int64_t run() { return dtype() == DType::f64 ? 256 : 512; }
  static std::int64_t chunk() { return chunk_elements(dtype()); }
};

TEST_P(CpuPassOn, AgreesAtEverySizeAroundABoundary) {
  std::set<std::int64_t> sizes;
  for (std::int64_t size = 0; size <= 70; ++size) sizes.insert(size);
  for (const std::int64_t boundary :
       {std::int64_t{128}, run(), 2 * run(), 3 * run(), chunk(), 2 * chunk(), 5 * chunk()}) {
    for (const std::int64_t step : {-17, -16, -15, -1, 0, 1, 15, 16, 17}) {
      sizes.insert(boundary + step);
    }
  }
  std::mt19937_64 random(1);
  for (const std::int64_t size : sizes) {
    SCOPED_TRACE(size);
    TensorData tensor(dtype(), size);
    fill_normal(tensor, random, -12, 3);
    expect_agrees(read(path(), tensor), tensor);
  }
}

TEST_P(CpuPassOn, AgreesBitForBitAtEveryAlignment) {
  std::mt19937_64 random(2);
  for (const std::int64_t size : {std::int64_t{45}, run() + 5, chunk() + 3}) {
    TensorData aligned(dtype(), size);
    fill_normal(aligned, random, -12, 3);
    aligned.set_bits(size / 2, nan_bits(dtype()));
    const TensorStats expected = read(path(), aligned);
    expect_agrees(expected, aligned);
    for (std::size_t offset = 1; offset < 64; ++offset) {
      TensorData shifted(dtype(), size, offset);
      shifted.copy_from(aligned);
      EXPECT_TRUE(same_bits(read(path(), shifted), expected)) << "offset " << offset;
    }
  }
}

TEST_P(CpuPassOn, AgreesOverTheWholeRangeOfTheDtype) {
  std::mt19937_64 random(3);
  const std::int64_t size = 2 * chunk() + 77;
  // In exponents of two: a narrow band everywhere, then wide ones. What a dtype lacks is clamped.
  for (int low = -1080; low <= 1020; low += 20) {
    if (dtype() != DType::f64 && (low < -160 || low > 130)) continue;
    SCOPED_TRACE(low);
    TensorData tensor(dtype(), 3 * run() + 21);
    fill_normal(tensor, random, low, low + 5);
    expect_agrees(read(path(), tensor), tensor);
  }
  for (const auto& [low, high] : std::initializer_list<std::pair<int, int>>{
           {-1100, 1100}, {-45, -35}, {35, 45}, {-60, 60}, {-510, -490}, {490, 510}, {-520, 520}}) {
    SCOPED_TRACE(testing::Message() << low << " to " << high);
    TensorData tensor(dtype(), size);
    fill_normal(tensor, random, low, high);
    expect_agrees(read(path(), tensor), tensor);
  }
}

TEST_P(CpuPassOn, AgreesWhereSquaresWouldLeaveTheRange) {
  std::vector<double> magnitudes;
  switch (dtype()) {
    case DType::f64:
      magnitudes = {1e200, 1e300, 1e308, 1e-200, 1e-300, 1e-320, 5e-324};
      break;
    case DType::f32:
      magnitudes = {1e20, 3e38, 1e-30, 1e-38, 1e-45};
      break;
    case DType::f16:
      magnitudes = {6e4, 65504, 6e-5, 6e-8};
      break;
    case DType::bf16:
      magnitudes = {1e38, 3e38, 1e-30, 1e-38, 1e-40};
      break;
  }
  for (const double magnitude : magnitudes) {
    SCOPED_TRACE(magnitude);
    const std::int64_t size = chunk() + run() + 7;
    TensorData tensor(dtype(), size);
    for (std::int64_t i = 0; i < size; ++i) tensor.set(i, i % 3 == 0 ? -magnitude : magnitude);
    expect_agrees(read(path(), tensor), tensor);
    // One such element among ordinary ones, and one ordinary among such.
    TensorData one(dtype(), size);
    for (std::int64_t i = 0; i < size; ++i) one.set(i, i == size / 3 ? magnitude : 0.5);
    expect_agrees(read(path(), one), one);
    tensor.set(size - 2, 0.5);
    expect_agrees(read(path(), tensor), tensor);
    // Among zeros alone: the zeros must not set the scale.
    TensorData lonely(dtype(), size);
    lonely.set(size - 1, magnitude);
    expect_agrees(read(path(), lonely), lonely);
  }
}

TEST_P(CpuPassOn, NamesEveryPlantedFaultInFiveHundredTrials) {
  std::mt19937_64 random(4);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(trial);
    const std::int64_t size = 1 + below(trial % 25 == 0 ? 3 * chunk() : 3 * run());
    TensorData tensor(dtype(), size, random() % 64);
    fill_normal(tensor, random, -10, 4);
    for (std::int64_t faults = 1 + below(6); faults > 0; --faults) {
      const std::int64_t at = below(size);
      const std::uint64_t sign = (random() & 1) != 0 ? sign_bit(dtype()) : 0;
      switch (random() % 5) {
        case 0:  // quiet, signalling, either sign
          tensor.set_bits(at, sign | nan_bits(dtype(), 1 + random() % 7));
          break;
        case 1:
          tensor.set_bits(at, inf_bits(dtype()));
          break;
        case 2:
          tensor.set_bits(at, inf_bits(dtype()) | sign_bit(dtype()));
          break;
        case 3:
          tensor.set_bits(at, sign);
          break;
        default:
          tensor.set_bits(at, sign | (1 + random() % 7));  // subnormal
      }
    }
    expect_agrees(read(path(), tensor), tensor);
  }
}

TEST_P(CpuPassOn, CountsTensorsThatAreNothingButOneKind) {
  const std::uint64_t sign = sign_bit(dtype());
  for (const std::uint64_t bits : {nan_bits(dtype()), inf_bits(dtype()), inf_bits(dtype()) | sign,
                                   std::uint64_t{0}, sign, std::uint64_t{1}, sign | 3}) {
    for (const std::int64_t size : {std::int64_t{1}, run() - 1, run(), 3 * chunk() + 9}) {
      SCOPED_TRACE(testing::Message() << std::hex << bits << std::dec << " x " << size);
      TensorData tensor(dtype(), size);
      tensor.fill_bits([&](std::int64_t) { return bits; });
      expect_agrees(read(path(), tensor), tensor);
    }
  }
}

TEST_P(CpuPassOn, AgreesOverEveryPatternThatRandomBitsHave) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    TensorData tensor(dtype(), 4 * run() + trial);
    tensor.fill_bits([&](std::int64_t) { return random(); });
    expect_agrees(read(path(), tensor), tensor);
  }
}

TEST_P(CpuPassOn, CountsMoreZerosThanAFloatCan) {
  constexpr std::int64_t kZeros = (std::int64_t{1} << 24) + 3;
  TensorData tensor(dtype(), kZeros + 2);
  tensor.set(5, 2);
  tensor.set(kZeros, -2);
  const TensorStats stats = read(path(), tensor);
  EXPECT_EQ(stats.zero, kZeros);
  EXPECT_EQ(stats.sum_sq, 8);
}

INSTANTIATE_TEST_SUITE_P(EveryPathAndDtype, CpuPassOn,
                         testing::Combine(testing::ValuesIn(test::kAllPaths),
                                          testing::ValuesIn(test::kAllDTypes)),
                         [](const auto& given) {
                           return std::string(name(std::get<0>(given.param))) + "_" +
                                  std::string(name(std::get<1>(given.param)));
                         });

TEST(CpuPass, ReadsManyTensorsOfEveryDtypeInOneGoAndEmptyOnesToo) {
  std::mt19937_64 random(6);
  std::vector<TensorData> tensors;
  for (int i = 0; i < 400; ++i) {
    const DType dtype = test::kAllDTypes[random() % 4];
    const auto numel = static_cast<std::int64_t>(random() % (i % 40 == 0 ? 100'000 : 3000));
    tensors.emplace_back(dtype, i % 7 == 0 ? 0 : numel, random() % 64);
    fill_normal(tensors.back(), random, -20, 20);
  }
  std::vector<TensorShape> shapes;
  std::vector<const void*> data;
  for (const TensorData& tensor : tensors) {
    shapes.push_back(tensor.shape());
    data.push_back(tensor.numel() == 0 ? nullptr : tensor.data());
  }
  CpuPass pass{ChunkPlan(shapes)};
  for (int repeat = 0; repeat < 2; ++repeat) {
    const std::vector<TensorStats> stats = read(pass, data);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      SCOPED_TRACE(i);
      expect_agrees(stats[i], tensors[i]);
      // A tensor's bits do not depend on the company it is read in, but for how it is cut.
      if (tensors[i].numel() <= chunk_elements(tensors[i].dtype())) {
        EXPECT_TRUE(same_bits(stats[i], read(pass.path(), tensors[i])));
      }
    }
  }
}

TEST(CpuPass, AnEmptyTensorHasTheStatisticsOfNothing) {
  const TensorStats stats = read(best_cpu_path(), TensorData(DType::f16, 0));
  EXPECT_TRUE(same_bits(stats, TensorStats{}));
}

TEST(CpuPass, APathThatThisProcessorLacksIsRefused) {
  EXPECT_TRUE(supported(CpuPath::scalar));
  EXPECT_TRUE(supported(best_cpu_path()));
  const TensorShape shape{1, DType::f32};
  for (const CpuPath path : test::kAllPaths) {
    if (supported(path)) {
      EXPECT_EQ(CpuPass(ChunkPlan({&shape, 1}), path).path(), path);
    } else {
      EXPECT_THROW(CpuPass(ChunkPlan({&shape, 1}), path), std::invalid_argument);
    }
  }
}

#if defined(__x86_64__)
// A training program may flush subnormals, round elsewhere or trap on invalid operations.
TEST(CpuPass, NeitherObeysNorChangesTheFloatingPointStateOfTheThread) {
  for (const CpuPath path : test::kAllPaths) {
    if (!supported(path)) continue;
    for (const DType dtype : test::kAllDTypes) {
      std::mt19937_64 random(7);
      TensorData tensor(dtype, 2000);
      fill_normal(tensor, random, -2000, -1000);
      tensor.set_bits(100, 3);
      tensor.set_bits(200, nan_bits(dtype));
      const TensorStats expected = read(path, tensor);

      const unsigned saved = _mm_getcsr();
      constexpr unsigned kFlushTruncateTrap =
          0x8040 | 0x6000;  // FTZ, DAZ, to zero, no mask, no flag
      _mm_setcsr(kFlushTruncateTrap);
      const TensorStats actual = read(path, tensor);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(saved);
      EXPECT_EQ(after, kFlushTruncateTrap);
      EXPECT_TRUE(same_bits(actual, expected));
    }
  }
}
#endif

}  // namespace
}  // namespace gradvane::kernels
