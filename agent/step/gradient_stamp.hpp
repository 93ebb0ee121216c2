#pragma once
// How a gradient looked at one moment, to see later whether it has been written to since.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gradvane::agent {

/// Version counters do not show every write: not those of collectives, `.data` and the program's
/// kernels.
struct GradientStamp {
  const void* data = nullptr;
  std::uint32_t version = 0;
  friend bool operator==(const GradientStamp&, const GradientStamp&) = default;

  /// Empty for a gradient that is undefined or an inference tensor, which counts no versions.
  [[nodiscard]] static GradientStamp of(const at::Tensor& gradient) noexcept {
    GradientStamp stamp;
    if (!gradient.defined() || gradient.is_inference()) return stamp;
    stamp.data = gradient.unsafeGetTensorImpl();
    stamp.version = gradient.unsafeGetTensorImpl()->version_counter().current_version();
    return stamp;
  }
};

}  // namespace gradvane::agent
