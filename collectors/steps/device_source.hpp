#pragma once
// Where the results of reads on a device arrive, as the worker knows it: a ring, and what its entries are.
#include <cstdint>
#include <memory>
#include <vector>

#include "collectors/steps/memory_order.hpp"
#include "kernels/result_ring.hpp"

namespace gradvane::collectors {

struct DeviceSource {
  std::uint64_t id = 0;  ///< from 1; never reused
  int device = 0;
  /// Keeps its pass alive too: kernels in flight, or in a captured graph, write there.
  std::shared_ptr<const kernels::ResultRing> ring;
  /// By entry: how to turn an element's place in memory into its row-major index.
  std::vector<MemoryOrder> orders;
};

}  // namespace gradvane::collectors
