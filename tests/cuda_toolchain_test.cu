// Proves the compiler set-up: C++20 in device code, the shared runtime, and an answer instead of a crash where there
// is no driver.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <concepts>

namespace gradvane {
namespace {
template <std::integral T>
__global__ void sum_of_block(T* out) {
  atomicAdd(out, static_cast<T>(threadIdx.x));
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
  *out = 0;
  sum_of_block<<<1, 128>>>(out);
  ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
  EXPECT_EQ(127 * 128 / 2, *out);
  EXPECT_EQ(cudaSuccess, cudaFree(out));
}
}  // namespace
}  // namespace gradvane
