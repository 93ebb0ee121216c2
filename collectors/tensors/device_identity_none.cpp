// A build without CUDA.
#include "collectors/tensors/device_identity.hpp"

namespace gradvane::collectors {

std::optional<record::DeviceInfo> device_info(int /*index*/) noexcept { return std::nullopt; }

}  // namespace gradvane::collectors
