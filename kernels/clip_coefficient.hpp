#pragma once
// What clipping to a largest norm multiplies by: for whoever clips, on a host or a device, and for the
// record of what a device did.
#include "kernels/host_device.hpp"

namespace gradvane::kernels {

/// max_norm / (norm + 1e-6), at most 1; NaN where the norm is, 0 where it is infinite: the formula of
/// torch::nn::utils::clip_grad_norm_.
[[nodiscard]] GRADVANE_HOST_DEVICE inline double clip_coefficient(double norm,
                                                                  double max_norm) noexcept {
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient > 1 ? 1 : coefficient;  // NaN stays NaN
}

}  // namespace gradvane::kernels
