#pragma once
// How a gradient looked at one moment, to see later whether it has been written to since.
#include <cstdint>

#include "collectors/tensors/tensor.hpp"

namespace gradvane::agent {

/// Version counters do not show every write: not those of collectives, `.data` and the program's
/// kernels.
struct GradientStamp {
  const void* data = nullptr;
  std::uint32_t version = 0;
  friend bool operator==(const GradientStamp&, const GradientStamp&) = default;

  /// Empty for a gradient that is undefined or an inference tensor, which counts no versions.
  [[nodiscard]] static GradientStamp of(const collectors::Tensor& gradient) noexcept {
    GradientStamp stamp;
    if (!gradient.defined()) return stamp;
    const auto version = collectors::version_of(gradient);
    if (!version) return stamp;
    stamp.data = collectors::identity_of(gradient);
    stamp.version = *version;
    return stamp;
  }
  [[nodiscard]] bool counts_writes() const noexcept { return data != nullptr; }
};

}  // namespace gradvane::agent
