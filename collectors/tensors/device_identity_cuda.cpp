// A build with CUDA.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "collectors/tensors/device_identity.hpp"

namespace gradvane::collectors {

std::optional<record::DeviceInfo> device_info(int index) noexcept try {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
    (void)cudaGetLastError();  // it is ours, not the program's
    return std::nullopt;
  }
  std::array<std::uint8_t, 16> bytes{};
  std::ranges::transform(properties.uuid.bytes, bytes.begin(),
                         [](char byte) { return static_cast<std::uint8_t>(byte); });
  return record::DeviceInfo{.device = "cuda:" + std::to_string(index),
                            .uuid = gpu_uuid(bytes),
                            .name = &properties.name[0]};
} catch (...) {  // no memory
  return std::nullopt;
}

}  // namespace gradvane::collectors
