// A build without CUDA has no memory of a device, and pins none of the host.
#include "collectors/tensors/device_memory.hpp"
#include "collectors/tensors/pinned_memory.hpp"

namespace gradvane::collectors {

std::optional<DeviceMemoryUse> device_memory_use() noexcept { return std::nullopt; }

std::string pin(void*, std::size_t) { return "this build is without CUDA"; }
void unpin(void*) noexcept {}

}  // namespace gradvane::collectors
