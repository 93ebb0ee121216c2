#pragma once
// What clipping to a largest norm multiplies by: for whoever clips, and for the record of what a device
// did.

namespace gradvane::collectors {

/// max_norm / (norm + 1e-6), at most 1; NaN where the norm is, 0 where it is infinite: the formula of
/// torch::nn::utils::clip_grad_norm_.
[[nodiscard]] inline double clip_coefficient(double norm, double max_norm) noexcept {
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient > 1 ? 1 : coefficient;  // NaN stays NaN
}

}  // namespace gradvane::collectors
