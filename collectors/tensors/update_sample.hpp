#pragma once
// The update-to-weight ratio ‖Δw‖ / ‖w‖ of a step, estimated from a sample of each parameter that is kept
// from before the update to after it.
//
// Estimate: ‖Δw‖² ≈ numel / m · Σ Δw_i² over m elements, one of each of m equal parts of the parameter.
// Exact where m = numel. Its error against the exact ratio is measured in docs/update-ratio.md.
#include <cstdint>
#include <span>
#include <vector>

#include "collectors/tensors/tensor_view.hpp"
#include "kernels/dtype.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::collectors {

/// A tensor that can be sampled where it lies: dense real numbers. Anything else: not readable.
[[nodiscard]] TensorView sampled_view(const Tensor& tensor) noexcept;

/// At most kMaxElements numbers whatever the model. Training thread only. CPU tensors; never throws
/// after resize().
class UpdateSample {
 public:
  static constexpr std::int64_t kMaxElements = 65536;  ///< 512 KiB of fp64

  /// Room for the sample of `params`, at most `per_param` elements of each. Allocates.
  void resize(std::span<const Tensor> params, std::int64_t per_param);

  /// Keeps the sample as it is before the update.
  void keep(std::span<const Tensor> params) noexcept;

  /// Statistics of Δw over the sample, one per parameter: numel = m, sum_sq = Σ Δw². A parameter that
  /// was not kept, or changed its size or dtype since, has numel 0. Non-finite differences are counted
  /// and left out.
  void difference(std::span<const Tensor> params, std::span<kernels::TensorStats> out) noexcept;

 private:
  struct Place {
    std::int64_t begin = 0;  ///< in kept_
    std::int64_t count = 0;  ///< m
    std::int64_t numel = 0;
    kernels::DType dtype = kernels::DType::f32;
    bool kept = false;
  };
  /// Parameter i, if it is still what room was made for; else a view of nothing.
  [[nodiscard]] TensorView at_place(std::size_t i, std::span<const Tensor> params) const noexcept;

  std::vector<Place> places_;
  std::vector<double> kept_;
};

}  // namespace gradvane::collectors
