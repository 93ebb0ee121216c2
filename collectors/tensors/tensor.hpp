#pragma once
// What Gradvane asks of a tensor, and nothing more.
//
// There are two kinds. Programs in C++ bring torch's own. The Python package has one over Python's object
// and torch's C interface: it is built without torch's headers, and works beside any torch. One file for
// each kind implements what is declared here: tensor_libtorch.cpp, and python/native/torch/tensor_python.cpp.
#ifdef GRADVANE_PYTHON_TENSORS
#include "collectors/tensors/python_tensor.hpp"
#else
#include <ATen/core/Tensor.h>
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype.hpp"

namespace gradvane::collectors {

#ifdef GRADVANE_PYTHON_TENSORS
using Tensor = PythonTensor;
#else
using Tensor = at::Tensor;
#endif

/// Makes all of them undefined.
inline void reset_all(std::span<Tensor> tensors) noexcept {
#ifdef GRADVANE_PYTHON_TENSORS
  PythonTensor::reset_all(tensors);
#else
  for (Tensor& tensor : tensors) tensor.reset();
#endif
}

/// How a tensor lies in memory. Valid while the tensor is neither freed nor changed.
struct TensorFacts {
  enum class Place : std::uint8_t { cpu, cuda, other };
  enum class Layout : std::uint8_t {
    strided,  ///< with memory of its own or of a base
    sparse,   ///< COO
    other,    ///< any other layout, lazily negated, or a wrapper without memory
  };
  Layout layout = Layout::other;
  Place place = Place::other;
  int device = -1;                      ///< index of a CUDA device
  std::optional<kernels::DType> dtype;  ///< of the pass; that of its parts if it is complex
  bool is_complex = false;
  bool is_row_major = false;  ///< dense, and in this order
  bool is_dense = false;      ///< every element once, without gaps, in any order
  bool has_memory = false;    ///< all that it needs; sharding takes it away with resize_(0)
  std::int64_t numel = 0;     ///< elements; a complex one is one
  const void* data = nullptr;
  // Not filled where it is row-major, which most are: they are not needed there.
  std::span<const std::int64_t> sizes;
  std::span<const std::int64_t> strides;  ///< in elements; empty for a sparse tensor
};

/// Looks without changing, allocating or waiting. An undefined tensor and one that refuses to be looked at
/// have the layout `other`.
[[nodiscard]] TensorFacts facts_of(const Tensor& tensor) noexcept;

/// The same for two handles of one tensor, for as long as it lives.
[[nodiscard]] const void* identity_of(const Tensor& tensor) noexcept;
[[nodiscard]] bool is_on_cpu(const Tensor& tensor) noexcept;  ///< false for an undefined one
/// Index of the CUDA device that it is on; -1: on none.
[[nodiscard]] int cuda_device_of(const Tensor& tensor) noexcept;
[[nodiscard]] bool requires_grad(const Tensor& tensor) noexcept;
/// Undefined where there is none.
[[nodiscard]] Tensor gradient_of(const Tensor& param) noexcept;
/// identity_of() its gradient; null where there is none. Takes no reference, so it may be asked of a parameter
/// that another thread is training.
[[nodiscard]] const void* gradient_identity_of(const Tensor& param) noexcept;
/// How often it has been written to, as far as torch counts that; absent for an inference tensor, of
/// which it does not.
[[nodiscard]] std::optional<std::uint32_t> version_of(const Tensor& tensor) noexcept;

/// As torch.dtype and torch.device have it: float32, bfloat16; cpu, cuda:0.
[[nodiscard]] std::string dtype_name(const Tensor& tensor);
[[nodiscard]] std::string device_name(const Tensor& tensor);
[[nodiscard]] std::vector<std::int64_t> sizes_of(const Tensor& tensor);
/// Whether these are the tensor's. Allocates nothing where they are.
[[nodiscard]] bool is_of(const Tensor& tensor, const std::string& dtype, const std::string& device,
                         std::span<const std::int64_t> sizes);

// What torch itself does for us, on the current stream of the tensor's device and outside autograd. These
// throw what torch's operators throw.

/// The same elements, dense and row-major.
[[nodiscard]] Tensor dense_copy(const Tensor& tensor);
/// A copy of one element: 0-dim, fp64, where the tensor is.
[[nodiscard]] Tensor scalar_copy(const Tensor& tensor);
/// a + b of two such.
[[nodiscard]] Tensor scalar_sum(const Tensor& a, const Tensor& b);

/// The parts of a sparse tensor, each row-major.
struct SparseParts {
  Tensor values;
  Tensor indices;         ///< sparse dimensions x values, int64
  bool in_place = false;  ///< nothing was copied
};
/// Sums duplicate indices, as an optimizer does. Waits for a device, so it is for CPUs.
[[nodiscard]] SparseParts sparse_parts(const Tensor& tensor);

/// fp64 memory of ours on a CUDA device as a tensor that does not own it.
/// @param count  elements; absent: 0-dim
[[nodiscard]] Tensor tensor_over(const double* data, std::optional<std::int64_t> count, int device);
[[nodiscard]] Tensor tensor_over(const float* data, int device);  ///< 0-dim
/// Torch's current stream on a CUDA device: a cudaStream_t.
[[nodiscard]] void* current_stream(int device);

/// Calls run(begin, end) for parts of [0, end) of at least `grain`, on torch's own threads and this one.
void parallel_for(std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& run);

/// Lets other threads of Python run while this one waits or works for long. Nothing in C++.
class [[nodiscard]] OthersRun {
 public:
  OthersRun() noexcept;
  ~OthersRun();
  OthersRun(const OthersRun&) = delete;  // a scope
  OthersRun& operator=(const OthersRun&) = delete;

 private:
  void* state_ = nullptr;
};

/// Of the torch in this process: 2.11.0.
[[nodiscard]] std::string torch_version();

}  // namespace gradvane::collectors
