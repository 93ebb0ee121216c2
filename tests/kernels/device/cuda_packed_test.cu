// The packed instructions do what packed.hpp says they mean: every pair of 16-bit patterns, subnormals
// above all.
#include <gtest/gtest.h>

#include <cstdint>

#include "kernels/device/packed.hpp"
#include "tests/kernels/device/cuda_device.hpp"

namespace gradvane::kernels::test {
namespace {

struct Wrong {
  unsigned long long abs, max_nan, min, zero, below;
};

/// Thread x of block y compares pair (x, y), in both lanes, with another pair in the other lane.
__global__ void compare(Wrong* wrong) {
  using namespace device;
  const std::uint32_t a = blockIdx.y * 256 + threadIdx.x;
  for (std::uint32_t b = 0; b < 65536; ++b) {
    const std::uint32_t x = a << 16 | b;
    const std::uint32_t y = b << 16 | (a ^ 0x8001);
    const std::uint32_t xm = x & 0x7fff7fff;
    const std::uint32_t ym = y & 0x7fff7fff;
    const auto lanes = [](auto operation, std::uint32_t p, std::uint32_t q) {
      return meaning::join(operation(p >> 16, q >> 16), operation(p & 0xffff, q & 0xffff));
    };
    const auto lanes3 = [&](auto operation, std::uint32_t p, std::uint32_t q, std::uint32_t r) {
      return lanes(operation, lanes(operation, p, q), r);
    };
    // The magnitude of a NaN may come out as another NaN.
    const auto magnitude = [](std::uint32_t lane, std::uint32_t) {
      return meaning::is_nan(lane) ? 0x7fffu : lane & 0x7fff;
    };
    if (lanes(magnitude, packed_abs(x), 0) != lanes(magnitude, x, 0)) atomicAdd(&wrong->abs, 1ull);
    if (packed_max_nan(xm, ym) != lanes(meaning::max_nan, xm, ym)) atomicAdd(&wrong->max_nan, 1ull);
    if (packed_min(xm, ym) != lanes(meaning::min, xm, ym)) atomicAdd(&wrong->min, 1ull);
    // In chains, as the pass has them: the compiler joins two links into one instruction.
    const std::uint32_t z = b << 16 | b;
    const std::uint32_t zm = z & 0x7fff7fff;
    if (packed_max_nan(packed_max_nan(packed_abs(x), packed_abs(y)), packed_abs(z)) !=
        lanes3(meaning::max_nan, xm, ym, zm)) {
      atomicAdd(&wrong->max_nan, 1ull);
    }
    if (packed_min(packed_min(packed_abs(x), packed_abs(y)), packed_abs(z)) !=
        lanes3(meaning::min, xm, ym, zm)) {
      atomicAdd(&wrong->min, 1ull);
    }
    const auto is_zero = [](std::uint32_t lane, std::uint32_t) { return meaning::zero_mask(lane); };
    if (packed_zero_mask(x) != lanes(is_zero, x, 0)) atomicAdd(&wrong->zero, 1ull);
    // Only ever asked of magnitudes without a NaN.
    const std::uint32_t limit = both(0x0400);
    if ((xm & 0xffff) <= 0x7c00 && (xm >> 16) <= 0x7c00 &&
        packed_below_mask(xm, limit) != lanes(meaning::below_mask, xm, limit)) {
      atomicAdd(&wrong->below, 1ull);
    }
  }
}

class CudaPacked : public OnDevice {};

TEST_F(CudaPacked, EveryPairOfPatternsComesOutAsDefined) {
  Wrong* wrong = nullptr;
  ASSERT_CUDA(cudaMallocManaged(&wrong, sizeof(Wrong)));
  *wrong = {};
  compare<<<dim3(1, 256), 256>>>(wrong);
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(wrong->abs, 0ull);
  EXPECT_EQ(wrong->max_nan, 0ull);
  EXPECT_EQ(wrong->min, 0ull);
  EXPECT_EQ(wrong->zero, 0ull);
  EXPECT_EQ(wrong->below, 0ull);
  EXPECT_EQ(cudaSuccess, cudaFree(wrong));
}

}  // namespace
}  // namespace gradvane::kernels::test
