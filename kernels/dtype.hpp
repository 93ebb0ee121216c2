#pragma once
// The element types the statistics pass reads, and nothing else about them.
#include <cstddef>
#include <cstdint>

#include "kernels/host_device.hpp"

namespace gradvane::kernels {

enum class DType : std::uint8_t { f32, f64, f16, bf16 };

GRADVANE_HOST_DEVICE constexpr std::int64_t size_in_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
  }
  return 0;
}

}  // namespace gradvane::kernels
