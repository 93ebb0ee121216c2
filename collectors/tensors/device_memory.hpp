#pragma once
// What torch's caching allocator holds on the CUDA devices of this process.
#include <cstdint>
#include <optional>

namespace gradvane::collectors {

struct DeviceMemoryUse {
  std::int64_t allocated_bytes = 0;  ///< held by tensors
  std::int64_t reserved_bytes = 0;   ///< held by the allocator
};

/// All devices together. Takes the allocator's lock for a moment: training thread only. Absent where
/// torch has not used a device yet, in a build without CUDA, and with another allocator.
[[nodiscard]] std::optional<DeviceMemoryUse> device_memory_use() noexcept;

}  // namespace gradvane::collectors
