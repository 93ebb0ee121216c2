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
  bool exists = false;
  friend bool operator==(const GradientStamp&, const GradientStamp&) = default;

  /// Of an inference tensor it shows nothing but that there is one: that counts no versions.
  [[nodiscard]] static GradientStamp of(const collectors::Tensor& gradient) noexcept {
    GradientStamp stamp;
    if (!gradient.defined()) return stamp;
    stamp.exists = true;
    const auto version = collectors::version_of(gradient);
    if (!version) return stamp;
    stamp.data = collectors::identity_of(gradient);
    stamp.version = *version;
    return stamp;
  }
  /// By its identity alone, null for a gradient that is undefined: shows only whether it is another one.
  [[nodiscard]] static GradientStamp of_identity(const void* gradient) noexcept {
    return {.data = gradient, .exists = gradient != nullptr};
  }
  [[nodiscard]] bool counts_writes() const noexcept { return data != nullptr; }
};

}  // namespace gradvane::agent
