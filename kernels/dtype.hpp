#pragma once
// The element types the statistics pass reads, and nothing else about them.
#include <cstdint>
#include <string_view>

#include "kernels/host_device.hpp"

namespace gradvane::kernels {

enum class DType : std::uint8_t { f32, f64, f16, bf16 };
inline constexpr int kDTypes = 4;

/// 0 for a value that is no DType.
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

/// "f32", "f64", "f16", "bf16".
[[nodiscard]] constexpr std::string_view name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
  }
  return "?";
}

}  // namespace gradvane::kernels
