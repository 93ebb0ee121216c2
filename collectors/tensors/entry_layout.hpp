#pragma once
// What a device's pass has to know of its entries before it is made, and what they are likely to be.
#include "collectors/steps/memory_order.hpp"
#include "collectors/tensors/tensor.hpp"
#include "kernels/chunk_plan.hpp"

namespace gradvane::collectors {

/// Of a tensor that was never seen: no elements.
struct EntryLayout {
  kernels::TensorShape shape;
  MemoryOrder order;
  friend bool operator==(const EntryLayout&, const EntryLayout&) = default;
};

/// What a parameter says of its gradient before there is one: autograd gives it the same dtype, sizes and,
/// where the parameter is dense, strides.
struct ExpectedEntry {
  int device = -1;  ///< of CUDA; -1: none
  bool trains =
      false;  ///< a pass is divided by what is there, so what is frozen has no share in it
  EntryLayout layout;
  friend bool operator==(const ExpectedEntry&, const ExpectedEntry&) = default;
};

/// Nothing is expected of a tensor that the pass does not read.
[[nodiscard]] ExpectedEntry expected_entry(const Tensor& param) noexcept;

}  // namespace gradvane::collectors
