#include "collectors/steps/memory_order.hpp"

#include <algorithm>
#include <numeric>

namespace gradvane::collectors {

std::int64_t MemoryOrder::row_major(std::int64_t in_memory) const {
  if (in_memory < 0) return in_memory;
  if (is_complex) in_memory /= 2;
  if (strides.empty()) return in_memory;
  std::vector<std::size_t> by_stride(strides.size());
  std::iota(by_stride.begin(), by_stride.end(), std::size_t{0});
  std::stable_sort(by_stride.begin(), by_stride.end(),
                   [&](std::size_t a, std::size_t b) { return strides[a] > strides[b]; });
  std::vector<std::int64_t> coordinate(strides.size(), 0);
  for (const std::size_t d : by_stride) {
    if (sizes[d] <= 1) continue;  // its stride says nothing
    coordinate[d] = in_memory / strides[d];
    in_memory %= strides[d];
  }
  std::int64_t linear = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) linear = linear * sizes[d] + coordinate[d];
  return linear;
}

}  // namespace gradvane::collectors
