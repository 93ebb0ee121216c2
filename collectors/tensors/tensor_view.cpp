#include "collectors/tensors/tensor_view.hpp"

#include <cstring>

#include "kernels/element.hpp"

namespace gradvane::collectors {
namespace {

using kernels::DType;
using Layout = TensorFacts::Layout;

TensorView dense_view(const TensorFacts& facts, Readable how) {
  TensorView view;
  view.readable = how;
  view.dtype = *facts.dtype;
  view.data = facts.data;
  view.numel = facts.numel * (facts.is_complex ? 2 : 1);
  return view;
}

TensorView sparse_view(const Tensor& tensor, const TensorFacts& facts) {
  // Duplicate indices of an uncoalesced gradient are summed by the optimizer: so is its norm.
  const SparseParts parts = sparse_parts(tensor);
  const TensorFacts values = facts_of(parts.values);
  TensorView view = dense_view(values, parts.in_place ? Readable::yes : Readable::copied);
  view.implicit_zeros = (facts.numel - values.numel) * (facts.is_complex ? 2 : 1);
  view.holder = parts.values;
  if (view.numel == 0) view.data = nullptr;
  return view;
}

std::int64_t sparse_row_major(const Tensor& tensor, const TensorFacts& facts,
                              std::int64_t in_values) {
  const SparseParts parts = sparse_parts(tensor);
  const TensorFacts indices = facts_of(parts.indices);
  const auto sparse_dims = static_cast<std::size_t>(indices.sizes[0]);
  const auto nnz = static_cast<std::size_t>(indices.sizes[1]);
  std::int64_t dense_numel = 1;
  for (const std::int64_t size : facts.sizes.subspan(sparse_dims)) dense_numel *= size;
  const auto entry = static_cast<std::size_t>(in_values / dense_numel);
  const auto* index = static_cast<const std::int64_t*>(indices.data);
  std::int64_t linear = 0;
  for (std::size_t d = 0; d < sparse_dims; ++d)
    linear = linear * facts.sizes[d] + index[d * nnz + entry];
  return linear * dense_numel + in_values % dense_numel;
}

TensorView look(const Tensor& tensor, const TensorFacts& facts) {
  TensorView view;
  view.readable = Readable::unsupported;
  if (!facts.dtype || facts.place == TensorFacts::Place::other || facts.layout == Layout::other)
    return view;
  if (facts.layout == Layout::sparse) {
    // Coalescing waits for the device, and another number of values each step wants another plan.
    return facts.place == TensorFacts::Place::cpu ? sparse_view(tensor, facts) : view;
  }
  if (facts.numel == 0) {
    view.readable = Readable::empty;
    view.dtype = *facts.dtype;
    return view;
  }
  if (!facts.has_memory) return view;
  if (facts.is_dense) return dense_view(facts, Readable::yes);
  Tensor copy = dense_copy(tensor);
  view = dense_view(facts_of(copy), Readable::copied);
  view.holder = std::move(copy);
  return view;
}

template <DType dtype>
double read_as(const void* data) noexcept {
  kernels::Bits<dtype> bits{};
  std::memcpy(&bits, data, sizeof bits);
  return static_cast<double>(kernels::value<dtype>(bits));
}

}  // namespace

EntryTag tag_of(Readable readable) noexcept {
  switch (readable) {
    case Readable::yes:
    case Readable::copied:
      return EntryTag::read;
    case Readable::empty:
      return EntryTag::empty;
    case Readable::absent:
      return EntryTag::missing;
    case Readable::unsupported:
      return EntryTag::unsupported;
  }
  return EntryTag::unsupported;
}

TensorView view_of(const Tensor& tensor) noexcept { return view_of(tensor, facts_of(tensor)); }

TensorView view_of(const Tensor& tensor, const TensorFacts& facts) noexcept try {
  return tensor.defined() ? look(tensor, facts) : TensorView{};
} catch (...) {  // no memory for a temporary, or a tensor subclass that refuses: not worth a run
  TensorView view;
  view.readable = Readable::unsupported;
  return view;
}

std::optional<double> scalar_value(const Tensor& tensor) noexcept {
  const TensorFacts facts = facts_of(tensor);
  if (facts.place != TensorFacts::Place::cpu || facts.layout != Layout::strided ||
      facts.numel != 1 || !facts.has_memory || !facts.dtype || facts.is_complex)
    return std::nullopt;
  switch (*facts.dtype) {
    case DType::f32:
      return read_as<DType::f32>(facts.data);
    case DType::f64:
      return read_as<DType::f64>(facts.data);
    case DType::f16:
      return read_as<DType::f16>(facts.data);
    case DType::bf16:
      return read_as<DType::bf16>(facts.data);
  }
  return std::nullopt;
}

MemoryOrder memory_order_of(const TensorFacts& facts) {
  MemoryOrder order;
  order.is_complex = facts.is_complex;
  // A copy is made row-major; a dense tensor is read in the order of its memory.
  if (facts.is_row_major || !facts.is_dense) return order;
  order.sizes.assign(facts.sizes.begin(), facts.sizes.end());
  order.strides.assign(facts.strides.begin(), facts.strides.end());
  return order;
}

std::int64_t row_major_index(const Tensor& tensor, std::int64_t in_memory) noexcept try {
  if (in_memory < 0) return in_memory;
  const TensorFacts facts = facts_of(tensor);
  if (facts.layout != Layout::sparse) return memory_order_of(facts).row_major(in_memory);
  return sparse_row_major(tensor, facts, facts.is_complex ? in_memory / 2 : in_memory);
} catch (...) {
  return in_memory;
}

}  // namespace gradvane::collectors
