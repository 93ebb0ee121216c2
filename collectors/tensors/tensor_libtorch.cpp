// Torch's own tensors.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <torch/version.h>

#include <array>

#include "collectors/tensors/tensor.hpp"

#ifdef GRADVANE_CUDA_TENSORS
#include <c10/cuda/CUDAStream.h>
#endif

namespace gradvane::collectors {
namespace {

using kernels::DType;

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

bool has_memory(const at::Tensor& tensor) {
  const auto offset = static_cast<std::size_t>(tensor.storage_offset());
  const std::size_t needed =
      tensor.is_contiguous()  // nearly always, and then there are no strides to go through
          ? (offset + static_cast<std::size_t>(tensor.numel())) * tensor.itemsize()
          : at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                             offset);
  return tensor.storage().nbytes() >= needed && tensor.const_data_ptr() != nullptr;
}

/// Looked at for every parameter in every step, so the names are made once.
const std::string& name_of(c10::ScalarType type) {
  static const auto kNames = [] {
    std::array<std::string, c10::NumScalarTypes> names;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto each = static_cast<c10::ScalarType>(i);
      try {
        names[i] = c10::getDtypeNames(each).first;
      } catch (...) {  // none that a parameter can have
        names[i] = c10::toString(each);
      }
    }
    return names;
  }();
  return kNames[static_cast<std::size_t>(type)];
}

}  // namespace

TensorFacts facts_of(const at::Tensor& tensor) noexcept try {
  TensorFacts facts;
  if (!tensor.defined()) return facts;
  facts.dtype = pass_dtype(tensor.scalar_type());
  facts.is_complex = tensor.is_complex();
  facts.place = tensor.is_cpu()    ? TensorFacts::Place::cpu
                : tensor.is_cuda() ? TensorFacts::Place::cuda
                                   : TensorFacts::Place::other;
  // Of a CUDA tensor it is not negative.
  if (tensor.is_cuda()) facts.device = static_cast<unsigned char>(tensor.device().index());
  if (tensor.layout() == at::kSparse) {
    facts.numel = tensor.numel();
    facts.sizes = tensor.sizes();
    facts.layout = TensorFacts::Layout::sparse;
    return facts;
  }
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_neg()) return facts;
  facts.numel = tensor.numel();
  facts.sizes = tensor.sizes();
  facts.strides = tensor.strides();
  facts.is_row_major = tensor.is_contiguous();
  facts.is_dense = facts.is_row_major || tensor.is_non_overlapping_and_dense();
  facts.has_memory = has_memory(tensor);
  facts.data = tensor.const_data_ptr();
  facts.layout = TensorFacts::Layout::strided;
  return facts;
} catch (...) {  // a kind of tensor that does not answer such questions
  return {};
}

const void* identity_of(const at::Tensor& tensor) noexcept { return tensor.unsafeGetTensorImpl(); }
bool is_on_cpu(const at::Tensor& tensor) noexcept { return tensor.defined() && tensor.is_cpu(); }
int cuda_device_of(const at::Tensor& tensor) noexcept {
  return tensor.defined() && tensor.is_cuda() ? tensor.device().index() : -1;
}
bool requires_grad(const at::Tensor& tensor) noexcept { return tensor.requires_grad(); }

const void* gradient_identity_of(const at::Tensor& param) noexcept try {
  const at::Tensor& gradient = std::as_const(*param.unsafeGetTensorImpl()).grad();
  return gradient.defined() ? identity_of(gradient) : nullptr;
} catch (...) {  // a tensor of a kind that has none
  return nullptr;
}

at::Tensor gradient_of(const at::Tensor& param) noexcept try {
  return param.grad();
} catch (...) {  // a kind of tensor that has none
  return {};
}

std::optional<std::uint32_t> version_of(const at::Tensor& tensor) noexcept {
  if (tensor.is_inference()) return std::nullopt;
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

std::string dtype_name(const at::Tensor& tensor) { return name_of(tensor.scalar_type()); }
std::string device_name(const at::Tensor& tensor) { return tensor.device().str(); }
std::vector<std::int64_t> sizes_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

bool is_of(const at::Tensor& tensor, const std::string& dtype, const std::string& device,
           std::span<const std::int64_t> sizes) {
  return dtype == name_of(tensor.scalar_type()) &&
         tensor.sizes() == c10::IntArrayRef(sizes.data(), sizes.size()) &&
         device == tensor.device().str();
}

at::Tensor dense_copy(const at::Tensor& tensor) {
  const c10::AutoGradMode off(false);
  return tensor.detach().contiguous();
}

at::Tensor scalar_copy(const at::Tensor& tensor) {
  const c10::AutoGradMode off(false);
  return tensor.detach().reshape({}).to(at::kDouble, false, /*copy=*/true);
}

at::Tensor scalar_sum(const at::Tensor& a, const at::Tensor& b) {
  const c10::AutoGradMode off(false);
  return a.add(b);
}

SparseParts sparse_parts(const at::Tensor& tensor) {
  const c10::AutoGradMode off(false);
  const at::Tensor coalesced = tensor.is_coalesced() ? tensor : tensor.coalesce();
  const at::Tensor stored = coalesced._values();
  SparseParts parts{stored.contiguous(), coalesced._indices().contiguous(), false};
  parts.in_place = tensor.is_coalesced() && parts.values.is_same(stored);
  return parts;
}

namespace {

at::Tensor over(const void* data, at::IntArrayRef sizes, at::ScalarType dtype, int device) {
  const auto options =
      at::TensorOptions().dtype(dtype).device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
  // Without a target torch asks the driver where the memory lies, for each tensor.
  return at::for_blob(const_cast<void*>(data), sizes)
      .options(options)
      .target_device(options.device())
      .make_tensor();
}

}  // namespace

at::Tensor tensor_over(const double* data, std::optional<std::int64_t> count, int device) {
  const std::int64_t size = count.value_or(0);
  return over(data, count ? at::IntArrayRef(size) : at::IntArrayRef(), at::kDouble, device);
}

at::Tensor tensor_over(const float* data, int device) { return over(data, {}, at::kFloat, device); }

void* current_stream([[maybe_unused]] int device) {
#ifdef GRADVANE_CUDA_TENSORS
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
#else
  return nullptr;  // nothing is read on a device
#endif
}

void parallel_for(std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& run) {
  at::parallel_for(0, end, grain, run);
}

OthersRun::OthersRun() noexcept = default;
OthersRun::~OthersRun() {}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace gradvane::collectors
