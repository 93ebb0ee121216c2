// What any pass must say of tensors, against the reference of tensor_data.hpp, which shares no code with
// it.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

#include "kernels/sum_scale.hpp"
#include "tests/kernels/pass_under_test.hpp"
#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels::test {

namespace {

// Short fp32 runs: 16 additions and 2 folds, each off by at most 2^-24 (cpu_part.hpp, device/group.hpp),
// so 18 * 2^-24 of a sum of squares and half of it in the norm. fp64: rounding only.
double norm_tolerance(DType dtype) { return dtype == DType::f64 ? 1e-13 : 9 * 0x1p-24 + 1e-12; }
double sum_tolerance(DType dtype) { return dtype == DType::f64 ? 1e-13 : 18 * 0x1p-24 + 1e-12; }

}  // namespace

void expect_agrees(const TensorStats& actual, const TensorData& tensor) {
  const Expected expected = expect_of(tensor);
  EXPECT_EQ(without_sums(actual), expected.exact);
  EXPECT_EQ(actual.scale_exp, tensor.dtype() == DType::f64 ? scale_exp_for(actual.abs_max) : 0);
  expect_sums(actual, expected, sum_tolerance(tensor.dtype()), norm_tolerance(tensor.dtype()));
}

namespace {

class Statistics : public testing::TestWithParam<std::tuple<PassUnderTest, DType>> {
 protected:
  void SetUp() override {
    if (pass().missing.empty()) return;
    if (pass().required) FAIL() << pass().missing;
    GTEST_SKIP() << pass().missing;
  }
  static const PassUnderTest& pass() { return std::get<0>(GetParam()); }
  static DType dtype() { return std::get<1>(GetParam()); }
  static TensorStats read(const TensorData& tensor) { return pass().read(tensor); }
  /// Elements that a pass treats alike, in the tests' sense: around their multiples it is tried.
  static std::int64_t run() { return pass().run_bytes / size_in_bytes(dtype()); }
  static std::int64_t chunk() { return chunk_elements(dtype()); }
  static std::size_t alignment() {
    return pass().any_address ? 1 : static_cast<std::size_t>(size_in_bytes(dtype()));
  }
};

class StatisticsOfLargeTensors : public Statistics {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StatisticsOfLargeTensors);

TEST_P(Statistics, AgreesAtEverySizeAroundABoundary) {
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
    expect_agrees(read(tensor), tensor);
  }
}

TEST_P(Statistics, AgreesAtEveryAlignment) {
  std::mt19937_64 random(2);
  for (const std::int64_t size : {std::int64_t{45}, run() + 5, chunk() + 3}) {
    TensorData aligned(dtype(), size);
    fill_normal(aligned, random, -12, 3);
    aligned.set_bits(size / 2, nan_bits(dtype()));
    const TensorStats expected = read(aligned);
    expect_agrees(expected, aligned);
    for (std::size_t offset = alignment(); offset < 64; offset += alignment()) {
      SCOPED_TRACE(offset);
      TensorData shifted(dtype(), size, offset);
      shifted.copy_from(aligned);
      const TensorStats stats = read(shifted);
      expect_agrees(stats, shifted);
      if (pass().any_alignment) {
        EXPECT_TRUE(same_bits(stats, expected));
      }
    }
  }
}

TEST_P(Statistics, AgreesOverTheWholeRangeOfTheDtype) {
  std::mt19937_64 random(3);
  const std::int64_t size = 2 * chunk() + 77;
  // In exponents of two: a narrow band everywhere, then wide ones. What a dtype lacks is clamped.
  for (int low = -1080; low <= 1020; low += 20) {
    if (dtype() != DType::f64 && (low < -160 || low > 130)) continue;
    SCOPED_TRACE(low);
    TensorData tensor(dtype(), 3 * run() + 21);
    fill_normal(tensor, random, low, low + 5);
    expect_agrees(read(tensor), tensor);
  }
  for (const auto& [low, high] : std::initializer_list<std::pair<int, int>>{
           {-1100, 1100}, {-45, -35}, {35, 45}, {-60, 60}, {-510, -490}, {490, 510}, {-520, 520}}) {
    SCOPED_TRACE(testing::Message() << low << " to " << high);
    TensorData tensor(dtype(), size);
    fill_normal(tensor, random, low, high);
    expect_agrees(read(tensor), tensor);
  }
}

TEST_P(Statistics, AgreesWhereSquaresWouldLeaveTheRange) {
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
    expect_agrees(read(tensor), tensor);
    // One such element among ordinary ones, and one ordinary among such.
    TensorData one(dtype(), size);
    for (std::int64_t i = 0; i < size; ++i) one.set(i, i == size / 3 ? magnitude : 0.5);
    expect_agrees(read(one), one);
    tensor.set(size - 2, 0.5);
    expect_agrees(read(tensor), tensor);
    // Among zeros alone: the zeros must not set the scale.
    TensorData lonely(dtype(), size);
    lonely.set(size - 1, magnitude);
    expect_agrees(read(lonely), lonely);
  }
}

TEST_P(Statistics, NamesEveryPlantedFaultInFiveHundredTrials) {
  std::mt19937_64 random(4);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(trial);
    const std::int64_t size = 1 + below(trial % 25 == 0 ? 3 * chunk() : 3 * run());
    TensorData tensor(dtype(), size, random() % 64 / alignment() * alignment());
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
    expect_agrees(read(tensor), tensor);
  }
}

TEST_P(Statistics, CountsTensorsThatAreNothingButOneKind) {
  const std::uint64_t sign = sign_bit(dtype());
  for (const std::uint64_t bits : {nan_bits(dtype()), inf_bits(dtype()), inf_bits(dtype()) | sign,
                                   std::uint64_t{0}, sign, std::uint64_t{1}, sign | 3}) {
    for (const std::int64_t size : {std::int64_t{1}, run() - 1, run(), 3 * chunk() + 9}) {
      SCOPED_TRACE(testing::Message() << std::hex << bits << std::dec << " x " << size);
      TensorData tensor(dtype(), size);
      tensor.fill_bits([&](std::int64_t) { return bits; });
      expect_agrees(read(tensor), tensor);
    }
  }
}

TEST_P(Statistics, AgreesOverEveryPatternThatRandomBitsHave) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    TensorData tensor(dtype(), 4 * run() + trial);
    tensor.fill_bits([&](std::int64_t) { return random(); });
    expect_agrees(read(tensor), tensor);
  }
}

TEST_P(StatisticsOfLargeTensors, CountsMoreZerosThanAFloatCan) {
  constexpr std::int64_t kZeros = (std::int64_t{1} << 24) + 3;
  TensorData tensor(dtype(), kZeros + 2);
  tensor.set(5, 2);
  tensor.set(kZeros, -2);
  const TensorStats stats = read(tensor);
  EXPECT_EQ(stats.zero, kZeros);
  EXPECT_EQ(stats.sum_sq, 8);
}

std::vector<PassUnderTest> passes_for_large_tensors() {
  std::vector<PassUnderTest> passes = passes_under_test();
  std::erase_if(passes, [](const PassUnderTest& pass) { return !pass.takes_large_tensors; });
  return passes;
}
std::string name_of_case(const testing::TestParamInfo<std::tuple<PassUnderTest, DType>>& given) {
  return std::get<0>(given.param).name + "_" + std::string(name(std::get<1>(given.param)));
}

INSTANTIATE_TEST_SUITE_P(EveryPassAndDtype, Statistics,
                         testing::Combine(testing::ValuesIn(passes_under_test()),
                                          testing::ValuesIn(kAllDTypes)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(EveryPassAndDtype, StatisticsOfLargeTensors,
                         testing::Combine(testing::ValuesIn(passes_for_large_tensors()),
                                          testing::ValuesIn(kAllDTypes)),
                         name_of_case);

}  // namespace
}  // namespace gradvane::kernels::test
