// A build with CUDA.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "collectors/tensors/device_memory.hpp"

namespace gradvane::collectors {

std::optional<DeviceMemoryUse> device_memory_use() noexcept try {
  c10::cuda::CUDACachingAllocator::CUDAAllocator* allocator =
      c10::cuda::CUDACachingAllocator::get();
  if (allocator == nullptr || !allocator->initialized()) return std::nullopt;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  DeviceMemoryUse use;
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
    const auto stats = allocator->getDeviceStats(device);
    if (stats.reserved_bytes[kAll].peak >
        0) {  // torch has used this one, so its properties are known
      const auto total = static_cast<double>(at::cuda::getDeviceProperties(device)->totalGlobalMem);
      use.limit_bytes += static_cast<std::int64_t>(total * allocator->getMemoryFraction(device));
    }
    use.allocated_bytes += stats.allocated_bytes[kAll].current;
    use.reserved_bytes += stats.reserved_bytes[kAll].current;
    use.peak_bytes += stats.allocated_bytes[kAll].peak;
    use.allocation_retries += stats.num_alloc_retries;
    use.out_of_memory += stats.num_ooms;
  }
  return use;
} catch (...) {  // an allocator that keeps no statistics
  return std::nullopt;
}

}  // namespace gradvane::collectors
