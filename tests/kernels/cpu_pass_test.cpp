// The CPU paths: what only they promise. pass_statistics_cases.cpp has what every pass does.
#include "kernels/cpu_pass.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/kernels/pass_under_test.hpp"
#include "tests/kernels/tensor_data.hpp"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace gradvane::kernels {

std::vector<test::PassUnderTest> test::passes_under_test() {
  std::vector<PassUnderTest> passes;
  for (const CpuPath path : kAllPaths) {
    PassUnderTest pass{.name = std::string(name(path))};
    if (!supported(path)) pass.missing = "this processor has no " + pass.name;
    pass.read = [path](const TensorData& tensor) { return test::read(path, tensor); };
    passes.push_back(std::move(pass));
  }
  return passes;
}

namespace {

using test::expect_agrees;
using test::fill_normal;
using test::nan_bits;
using test::read;
using test::same_bits;
using test::TensorData;

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
