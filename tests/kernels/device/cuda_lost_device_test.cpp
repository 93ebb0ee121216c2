// A device lost to somebody's bad address: a program of its own, because nothing on the device works
// after it.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "kernels/device/cuda_pass.hpp"
#include "tests/kernels/device/cuda_device.hpp"

namespace gradvane::kernels::test {
namespace {

class CudaLostDevice : public OnDevice {};

TEST_F(CudaLostDevice, EnqueueSaysSoAndTheErrorStaysWhereTheProgramFindsIt) {
  const TensorShape shape{1 << 20, DType::f32};
  const Site site = Site::grad;
  {
    CudaPass pass(0, {&shape, 1}, {&site, 1}, 4, 1);
    const Stream stream;
    TensorData tensor(DType::f32, shape.numel);
    const DeviceTensor good(tensor);
    const void* data = good.data();
    ASSERT_CUDA(pass.enqueue({&data, 1}, 1, stream.get()));
    ASSERT_CUDA(pass.wait(stream.get()));

    const void* bad = std::bit_cast<const void*>(std::uintptr_t{1} << 40);
    (void)pass.enqueue({&bad, 1}, 2, stream.get());
    EXPECT_NE(cudaSuccess, pass.wait(stream.get()));
    EXPECT_NE(cudaSuccess, pass.enqueue({&data, 1}, 3, stream.get()));
    EXPECT_NE(cudaSuccess, cudaDeviceSynchronize()) << "the program must find the error too";

    // What was published before is still there to be read.
    SlotHeader header;
    std::vector<TensorStats> stats;
    EXPECT_EQ(RingReader(pass.ring()).read(1, header, stats), ReadStatus::ok);
    EXPECT_EQ(stats.at(0).zero, shape.numel);
    EXPECT_EQ(pass.ring().latest(), 1u);
  }  // letting go of everything on a lost device is no error
}

}  // namespace
}  // namespace gradvane::kernels::test
