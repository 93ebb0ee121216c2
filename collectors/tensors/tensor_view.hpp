#pragma once
// From a tensor to the pointer, count and dtype that the pass reads.
#include <cstdint>
#include <optional>
#include <string>

#include "collectors/steps/memory_order.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/tensor.hpp"
#include "kernels/dtype.hpp"

namespace gradvane::collectors {

/// How a tensor can be read.
enum class Readable : std::uint8_t {
  yes,          ///< in place
  copied,       ///< through a temporary: not dense in memory, or an uncoalesced sparse gradient
  absent,       ///< undefined
  empty,        ///< no elements
  unsupported,  ///< a dtype, layout or device this build does not read, or memory taken away
};

/// A tensor as dense memory. Valid while the tensor is neither freed nor resized.
struct TensorView {
  Readable readable = Readable::absent;
  kernels::DType dtype = kernels::DType::f32;
  const void* data = nullptr;
  std::int64_t numel = 0;           ///< elements in memory; a complex one counts as two
  std::int64_t implicit_zeros = 0;  ///< of a sparse tensor, counted in the same way
  Tensor holder;                    ///< keeps a temporary alive; undefined when read in place
};

/// Looks at `tensor`, on a CPU or a CUDA device, without changing it. Allocates only for `copied`, there
/// on the current stream. Does not synchronise: a sparse tensor on a device is `unsupported`. So is a
/// tensor whose copy finds no memory.
[[nodiscard]] TensorView view_of(const Tensor& tensor) noexcept;
/// The same, for a caller that has its facts.
[[nodiscard]] TensorView view_of(const Tensor& tensor, const TensorFacts& facts) noexcept;

/// What becomes of an entry that looks like this.
[[nodiscard]] EntryTag tag_of(Readable readable) noexcept;

/// How a dense strided tensor lies in memory. Allocates where it is not row-major.
[[nodiscard]] MemoryOrder memory_order_of(const TensorFacts& facts);

/// The row-major linear index, in `tensor`, of element `in_memory` of its view.
[[nodiscard]] std::int64_t row_major_index(const Tensor& tensor, std::int64_t in_memory) noexcept;

/// The number in a CPU tensor of one element; absent for any other tensor.
[[nodiscard]] std::optional<double> scalar_value(const Tensor& tensor) noexcept;

}  // namespace gradvane::collectors
