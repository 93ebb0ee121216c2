// What torch's allocator says of a device, against what the test itself allocates.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "collectors/tensors/device_identity.hpp"
#include "collectors/tensors/device_memory.hpp"
#include "tests/kernels/device/cuda_device.hpp"
#include "tests/kernels/device/sync_counter.hpp"

namespace gradvane::collectors {
namespace {

class DeviceMemoryOnCuda : public kernels::test::OnDevice {
 protected:
  static at::Tensor bytes(std::int64_t count) {
    return at::empty({count}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
  }
};

constexpr std::int64_t kSize = std::int64_t{64} << 20;

TEST_F(DeviceMemoryOnCuda, ThePeakStaysWhenTensorsGoAndIsNotReset) {
  const at::Tensor small = bytes(1024);
  const DeviceMemoryUse before = device_memory_use().value();
  {
    const at::Tensor large = bytes(kSize);
  }
  const DeviceMemoryUse after = device_memory_use().value();
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
  EXPECT_GE(after.peak_bytes, before.allocated_bytes + kSize);
  EXPECT_EQ(device_memory_use()->peak_bytes, after.peak_bytes) << "a look resets nothing";
}

TEST_F(DeviceMemoryOnCuda, TheLimitIsTheDevicesMemoryOrTheFractionThatTheProgramAllowed) {
  const at::Tensor small = bytes(1024);
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(device_memory_use()->limit_bytes, static_cast<std::int64_t>(total));
  c10::cuda::CUDACachingAllocator::setMemoryFraction(0.5, 0);
  EXPECT_EQ(device_memory_use()->limit_bytes, static_cast<std::int64_t>(total / 2));
  c10::cuda::CUDACachingAllocator::setMemoryFraction(1.0, 0);
}

TEST_F(DeviceMemoryOnCuda, AnAllocationThatFailsIsCountedWithItsRetry) {
  const at::Tensor small = bytes(1024);
  const DeviceMemoryUse before = device_memory_use().value();
  EXPECT_THROW((void)bytes(std::int64_t{1} << 50), c10::OutOfMemoryError);
  const DeviceMemoryUse after = device_memory_use().value();
  EXPECT_EQ(after.out_of_memory, before.out_of_memory + 1);
  EXPECT_GE(after.allocation_retries, before.allocation_retries);
}

TEST_F(DeviceMemoryOnCuda, ALookWaitsForNothingAndAllocatesNothing) {
  const at::Tensor small = bytes(1024);
  (void)device_memory_use();
  const kernels::test::SyncCounter counter;
  EXPECT_TRUE(device_memory_use());
  EXPECT_TRUE(device_info(0));
  EXPECT_EQ(counter.syncs(), 0);
  EXPECT_EQ(counter.allocations(), 0);
}

TEST_F(DeviceMemoryOnCuda, TheDeviceHasANameAndAUuid) {
  const auto device = device_info(0);
  ASSERT_TRUE(device);
  EXPECT_EQ(device->device, "cuda:0");
  EXPECT_FALSE(device->name.empty());
  EXPECT_EQ(device->uuid.size(), std::string("GPU-").size() + 36);
  EXPECT_NE(device->uuid, "GPU-00000000-0000-0000-0000-000000000000");
}

}  // namespace
}  // namespace gradvane::collectors
