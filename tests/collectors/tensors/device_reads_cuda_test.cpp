// DeviceReads on a device: what device_reads_test holds over a runtime that is not there, where the real
// one may have another opinion.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "collectors/tensors/device_reads.hpp"
#include "tests/kernels/device/cuda_device.hpp"
#include "tests/kernels/device/sync_counter.hpp"

namespace gradvane::collectors {
namespace {

class DeviceReadsOnCuda : public kernels::test::OnDevice {
 protected:
  static std::vector<at::Tensor> tensors() {
    std::vector<at::Tensor> tensors;
    for (const std::int64_t size : {300, 70, 5})
      tensors.push_back(at::ones({size, 7}, at::kCUDA).requires_grad_());
    return tensors;
  }
  void resize(std::span<const at::Tensor> expected) {
    reads_.resize(std::vector(3, kernels::Site::grad), 4, 7, expected);
  }
  bool read(std::span<const at::Tensor> tensors, const std::vector<std::size_t>& entries) {
    for (const std::size_t i : entries) EXPECT_EQ(reads_.set(i, tensors[i]), EntryTag::read);
    std::array<DeviceRead, 1> reads;
    return reads_.read(reads) == 1;
  }

  DeviceReads reads_;
};

TEST_F(DeviceReadsOnCuda, AGradientThatIsFirstSeenLaterMakesTheHostWaitForNothing) {
  const auto gradients = tensors();
  resize(tensors());
  ASSERT_TRUE(read(gradients, {1}));
  const kernels::test::SyncCounter counter;
  EXPECT_TRUE(read(gradients, {0, 1}));
  EXPECT_TRUE(read(gradients, {0, 1, 2}));
  EXPECT_EQ(counter.launches(), 2);
  EXPECT_EQ(counter.syncs(), 0);
  EXPECT_EQ(counter.allocations(), 0);
  EXPECT_EQ(reads_.take_new_sources().size(), 1u);
}

TEST_F(DeviceReadsOnCuda, ACaptureOfAnotherStreamGoesOnAndNoErrorIsLeft) {
  const auto gradients = tensors();
  resize(tensors());
  ASSERT_TRUE(read(gradients, {0}));
  ASSERT_CUDA(cudaDeviceSynchronize());
  cudaStream_t blocking = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&blocking));
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    ASSERT_CUDA(cudaStreamBeginCapture(blocking, mode));
    (void)read(gradients, {0});        // the pass that is there
    (void)read(gradients, {0, 1, 2});  // the same
    EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(blocking, &graph));
    (void)cudaGraphDestroy(graph);
    EXPECT_EQ(reads_.failure(), "");
    EXPECT_TRUE(read(gradients, {0}));
  }
  (void)cudaStreamDestroy(blocking);
}

TEST_F(DeviceReadsOnCuda, ASetUpWhileAnotherStreamIsCapturedBreaksNothing) {
  cudaStream_t blocking = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&blocking));
  for (std::int64_t size = 1; size <= 3; ++size) {  // each a pass of its own
    const std::vector<at::Tensor> gradients(3, at::ones({size}, at::kCUDA));
    resize(gradients);
    ASSERT_CUDA(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal));
    (void)read(gradients, {0});
    EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(blocking, &graph));
    (void)cudaGraphDestroy(graph);
    EXPECT_EQ(reads_.failure(), "");
    EXPECT_TRUE(read(gradients, {0}));
  }
  (void)cudaStreamDestroy(blocking);
}

}  // namespace
}  // namespace gradvane::collectors
