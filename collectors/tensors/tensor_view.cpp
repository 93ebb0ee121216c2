#include "collectors/tensors/tensor_view.hpp"

#include <ATen/EmptyTensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace gradvane::collectors {
namespace {

using kernels::DType;

TensorView dense_view(const at::Tensor& tensor, DType dtype, Readable how) {
  TensorView view;
  view.readable = how;
  view.dtype = dtype;
  view.data = tensor.const_data_ptr();
  view.numel = tensor.numel() * (tensor.is_complex() ? 2 : 1);
  return view;
}

/// Observing must not become part of the autograd graph.
at::Tensor contiguous_copy(const at::Tensor& tensor) {
  const c10::AutoGradMode off(false);
  return tensor.detach().contiguous();
}

/// False where the tensor's memory was taken from under it, as sharding does with resize_(0).
bool has_memory(const at::Tensor& tensor) {
  const std::size_t needed =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                       static_cast<std::size_t>(tensor.storage_offset()));
  return tensor.storage().nbytes() >= needed && tensor.const_data_ptr() != nullptr;
}

TensorView sparse_view(const at::Tensor& tensor, DType dtype) {
  const c10::AutoGradMode off(false);
  // Duplicate indices of an uncoalesced gradient are summed by the optimizer: so is its norm.
  const at::Tensor stored = (tensor.is_coalesced() ? tensor : tensor.coalesce())._values();
  const at::Tensor values = stored.contiguous();
  const bool in_place = tensor.is_coalesced() && values.is_same(stored);
  TensorView view = dense_view(values, dtype, in_place ? Readable::yes : Readable::copied);
  view.implicit_zeros = (tensor.numel() - values.numel()) * (tensor.is_complex() ? 2 : 1);
  view.holder = values;
  if (view.numel == 0) view.data = nullptr;
  return view;
}

std::int64_t sparse_row_major(const at::Tensor& tensor, std::int64_t in_values) {
  const c10::AutoGradMode off(false);
  const at::Tensor coalesced = tensor.is_coalesced() ? tensor : tensor.coalesce();
  const at::Tensor indices = coalesced._indices().contiguous();
  const std::int64_t sparse_dims = indices.size(0);
  const std::int64_t nnz = indices.size(1);
  std::int64_t dense_numel = 1;
  for (std::int64_t d = sparse_dims; d < tensor.dim(); ++d) dense_numel *= tensor.size(d);
  const std::int64_t entry = in_values / dense_numel;
  const auto* index = static_cast<const std::int64_t*>(indices.const_data_ptr());
  std::int64_t linear = 0;
  for (std::int64_t d = 0; d < sparse_dims; ++d)
    linear = linear * tensor.size(d) + index[d * nnz + entry];
  return linear * dense_numel + in_values % dense_numel;
}

TensorView look(const at::Tensor& tensor) {
  TensorView view;
  if (!tensor.defined()) return view;
  const auto dtype = pass_dtype(tensor.scalar_type());
  view.readable = Readable::unsupported;
  if (!dtype || !(tensor.is_cpu() || tensor.is_cuda())) return view;
  if (tensor.layout() == at::kSparse) {
    // Coalescing waits for the device, and another number of values each step wants another plan.
    if (tensor.is_cuda()) return view;
    return sparse_view(tensor, *dtype);
  }
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_neg()) return view;
  if (tensor.numel() == 0) {
    view.readable = Readable::empty;
    view.dtype = *dtype;
    return view;
  }
  if (!has_memory(tensor)) return view;
  if (tensor.is_non_overlapping_and_dense()) return dense_view(tensor, *dtype, Readable::yes);
  const at::Tensor copy = contiguous_copy(tensor);
  view = dense_view(copy, *dtype, Readable::copied);
  view.holder = copy;
  return view;
}

}  // namespace

std::optional<DType> pass_dtype(at::ScalarType type) noexcept {
  switch (type) {
    case at::kFloat:
    case at::kComplexFloat:
      return DType::f32;
    case at::kDouble:
    case at::kComplexDouble:
      return DType::f64;
    case at::kHalf:
    case at::kComplexHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

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

TensorView view_of(const at::Tensor& tensor) noexcept try {
  return look(tensor);
} catch (...) {  // no memory for a temporary, or a tensor subclass that refuses: not worth a run
  TensorView view;
  view.readable = Readable::unsupported;
  return view;
}

std::optional<double> scalar_value(const at::Tensor& tensor) noexcept try {
  if (!tensor.defined() || !tensor.device().is_cpu() || tensor.layout() != at::kStrided ||
      tensor.numel() != 1 || !tensor.has_storage() || tensor.is_neg() || !has_memory(tensor))
    return std::nullopt;
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return static_cast<double>(*static_cast<const float*>(data));
    case at::kDouble:
      return *static_cast<const double*>(data);
    case at::kHalf:
      return static_cast<double>(*static_cast<const c10::Half*>(data));
    case at::kBFloat16:
      return static_cast<double>(*static_cast<const c10::BFloat16*>(data));
    default:
      return std::nullopt;
  }
} catch (...) {
  return std::nullopt;
}

MemoryOrder memory_order_of(const at::Tensor& tensor) {
  MemoryOrder order;
  order.is_complex = tensor.is_complex();
  // A copy is made row-major; a dense tensor is read in the order of its memory.
  if (tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense()) return order;
  order.sizes = tensor.sizes().vec();
  order.strides = tensor.strides().vec();
  return order;
}

std::int64_t row_major_index(const at::Tensor& tensor, std::int64_t in_memory) noexcept try {
  if (in_memory < 0) return in_memory;
  if (tensor.layout() != at::kSparse) return memory_order_of(tensor).row_major(in_memory);
  return sparse_row_major(tensor, tensor.is_complex() ? in_memory / 2 : in_memory);
} catch (...) {
  return in_memory;
}

}  // namespace gradvane::collectors
