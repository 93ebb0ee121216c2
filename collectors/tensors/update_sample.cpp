#include "collectors/tensors/update_sample.hpp"

#include <algorithm>
#include <bit>

#include "collectors/tensors/tensor_view.hpp"
#include "kernels/element.hpp"
#include "kernels/sample_position.hpp"

namespace gradvane::collectors {
namespace {

using kernels::DType;

template <DType dtype, typename Use>
void walk(const TensorView& view, std::int64_t count, Use use) noexcept {
  const auto* data = static_cast<const kernels::Bits<dtype>*>(view.data);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = data[kernels::sample_position(i, count, view.numel)];
    use(i, static_cast<double>(kernels::value<dtype>(bits)));
  }
}

/// Calls use(i, value) for every sampled element.
template <typename Use>
void sample(const TensorView& view, std::int64_t count, Use use) noexcept {
  switch (view.dtype) {
    case DType::f32:
      return walk<DType::f32>(view, count, use);
    case DType::f64:
      return walk<DType::f64>(view, count, use);
    case DType::f16:
      return walk<DType::f16>(view, count, use);
    case DType::bf16:
      return walk<DType::bf16>(view, count, use);
  }
}

}  // namespace

TensorView sampled_view(const Tensor& tensor) noexcept {
  const TensorFacts facts = facts_of(tensor);
  if (facts.layout != TensorFacts::Layout::strided || facts.is_complex || !facts.is_dense)
    return {};
  TensorView view = view_of(tensor, facts);
  return view.readable == Readable::yes ? view : TensorView{};
}

void UpdateSample::resize(std::span<const Tensor> params, std::int64_t per_param) {
  const auto count = static_cast<std::int64_t>(params.size());
  const std::int64_t fair = count == 0 ? 0 : std::max<std::int64_t>(1, kMaxElements / count);
  const std::int64_t most = std::min(per_param, fair);
  places_.assign(params.size(), Place{});
  std::int64_t used = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const TensorView view = sampled_view(params[i]);
    if (view.data == nullptr || !is_on_cpu(params[i]) || !requires_grad(params[i])) continue;
    Place& place = places_[i];
    place.begin = used;
    place.numel = view.numel;
    place.dtype = view.dtype;
    place.count = std::min({most, place.numel, kMaxElements - used});
    used += place.count;
  }
  kept_.assign(static_cast<std::size_t>(used), 0.0);
}

TensorView UpdateSample::at_place(std::size_t i, std::span<const Tensor> params) const noexcept {
  const Place& place = places_[i];
  if (place.count == 0 || i >= params.size()) return {};
  TensorView view = sampled_view(params[i]);
  if (view.data == nullptr || !is_on_cpu(params[i]) || view.numel != place.numel ||
      view.dtype != place.dtype)
    return {};
  return view;
}

void UpdateSample::keep(std::span<const Tensor> params) noexcept {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    const TensorView view = at_place(i, params);
    place.kept = view.data != nullptr;
    if (!place.kept) continue;
    double* out = kept_.data() + place.begin;
    sample(view, place.count, [out](std::int64_t k, double value) { out[k] = value; });
  }
}

void UpdateSample::difference(std::span<const Tensor> params,
                              std::span<kernels::TensorStats> out) noexcept {
  for (std::size_t i = 0; i < std::min(places_.size(), out.size()); ++i) {
    kernels::TensorStats& stats = out[i] = kernels::TensorStats{};
    const Place& place = places_[i];
    const TensorView view = place.kept ? at_place(i, params) : TensorView{};
    if (view.data == nullptr) continue;
    const double* before = kept_.data() + place.begin;
    sample(view, place.count, [&](std::int64_t k, double after) {
      kernels::accumulate<DType::f64>(stats, std::bit_cast<std::uint64_t>(after - before[k]), k);
    });
  }
}

}  // namespace gradvane::collectors
