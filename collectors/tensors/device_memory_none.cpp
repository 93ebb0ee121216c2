// A build without CUDA.
#include "collectors/tensors/device_memory.hpp"

namespace gradvane::collectors {

std::optional<DeviceMemoryUse> device_memory_use() noexcept { return std::nullopt; }

}  // namespace gradvane::collectors
