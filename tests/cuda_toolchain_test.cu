// Proves the compiler set-up: C++20 in device code, CUB, the shared runtime, and an answer instead of
// a crash where there is no driver.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <concepts>
#include <cub/block/block_reduce.cuh>

namespace gradvane {
namespace {
template <std::integral T>
__global__ void sum_of_block(T* out) {
  using Reduce = cub::BlockReduce<T, 128>;
  __shared__ typename Reduce::TempStorage scratch;
  const T sum = Reduce(scratch).Sum(static_cast<T>(threadIdx.x));  // valid in thread 0 only
  if (threadIdx.x == 0) *out = sum;
}

TEST(CudaToolchain, RunsAKernelOrSaysWhyNot) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess) {
    EXPECT_TRUE(found == cudaErrorInsufficientDriver || found == cudaErrorNoDevice)
        << cudaGetErrorString(found);
    EXPECT_NE(cudaSuccess, cudaGetLastError());
    return;
  }
  int* out = nullptr;
  ASSERT_EQ(cudaSuccess, cudaMallocManaged(&out, sizeof(int)));
  sum_of_block<<<1, 128>>>(out);
  ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
  EXPECT_EQ(127 * 128 / 2, *out);
  EXPECT_EQ(cudaSuccess, cudaFree(out));
}
}  // namespace
}  // namespace gradvane
