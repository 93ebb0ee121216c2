#include "collectors/update_sample.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>

namespace gradvane::collectors {
namespace {

/// Element i of m, spread over numel. Both ends are not forced: the middle of each of m equal parts.
std::int64_t position(std::int64_t i, std::int64_t count, std::int64_t numel) noexcept {
  return (2 * i + 1) * numel / (2 * count);
}

template <typename T, typename Use>
void walk(const at::Tensor& tensor, std::int64_t count, Use use) noexcept {
  const T* data = static_cast<const T*>(tensor.const_data_ptr());
  const std::int64_t numel = tensor.numel();
  for (std::int64_t i = 0; i < count; ++i)
    use(i, static_cast<double>(data[position(i, count, numel)]));
}

/// Calls use(i, value) for every sampled element; false where the dtype or layout is not one we sample.
template <typename Use>
bool sample(const at::Tensor& tensor, std::int64_t count, Use use) noexcept {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      walk<float>(tensor, count, use);
      return true;
    case at::kDouble:
      walk<double>(tensor, count, use);
      return true;
    case at::kHalf:
      walk<c10::Half>(tensor, count, use);
      return true;
    case at::kBFloat16:
      walk<c10::BFloat16>(tensor, count, use);
      return true;
    default:
      return false;
  }
}

bool can_sample(const at::Tensor& tensor) noexcept {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
         tensor.has_storage() && tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
}

}  // namespace

void UpdateSample::resize(std::span<const at::Tensor> params, std::int64_t per_param) {
  const auto count = static_cast<std::int64_t>(params.size());
  const std::int64_t fair = count == 0 ? 0 : std::max<std::int64_t>(1, kMaxElements / count);
  const std::int64_t most = std::min(per_param, fair);
  places_.assign(params.size(), Place{});
  std::int64_t used = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (!can_sample(params[i]) || !params[i].requires_grad()) continue;
    Place& place = places_[i];
    place.begin = used;
    place.numel = params[i].numel();
    place.dtype = params[i].scalar_type();
    place.count = std::min({most, place.numel, kMaxElements - used});
    used += place.count;
  }
  kept_.assign(static_cast<std::size_t>(used), 0.0);
}

void UpdateSample::keep(std::span<const at::Tensor> params) noexcept {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    place.kept = false;
    if (place.count == 0 || i >= params.size() || !can_sample(params[i])) continue;
    if (params[i].numel() != place.numel || params[i].scalar_type() != place.dtype) continue;
    double* out = kept_.data() + place.begin;
    place.kept =
        sample(params[i], place.count, [out](std::int64_t k, double value) { out[k] = value; });
  }
}

void UpdateSample::difference(std::span<const at::Tensor> params,
                              std::span<kernels::TensorStats> out) noexcept {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    out[i] = kernels::TensorStats{};
    const Place& place = places_[i];
    if (!place.kept || !can_sample(params[i]) || params[i].numel() != place.numel ||
        params[i].scalar_type() != place.dtype)
      continue;
    kernels::TensorStats& stats = out[i];
    stats.numel = place.count;
    const double* before = kept_.data() + place.begin;
    sample(params[i], place.count, [&](std::int64_t k, double after) {
      const double delta = after - before[k];
      if (std::isfinite(delta)) {
        stats.sum += delta;
        stats.sum_sq += delta * delta;
        stats.abs_max = std::max(stats.abs_max, std::fabs(delta));
        stats.zero += delta == 0 ? 1 : 0;
      } else {
        ++stats.nan;
      }
    });
  }
}

}  // namespace gradvane::collectors
