#pragma once
// From an element's place in a dense tensor's memory to its row-major linear index.
#include <cstdint>
#include <vector>

namespace gradvane::collectors {

/// The layout of one tensor, outliving it. Empty `strides`: memory is in row-major order.
struct MemoryOrder {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  bool is_complex = false;  ///< two numbers an element

  /// The row-major index of element `in_memory`; negative numbers stay as they are. Throws only
  /// std::bad_alloc.
  [[nodiscard]] std::int64_t row_major(std::int64_t in_memory) const;

  friend bool operator==(const MemoryOrder&, const MemoryOrder&) = default;
};

}  // namespace gradvane::collectors
