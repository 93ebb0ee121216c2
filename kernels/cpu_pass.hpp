#pragma once
// The statistics pass on the CPU: every tensor of a plan in one read, over ranges of virtual blocks so
// that the caller brings the threads.
#include <span>
#include <string_view>
#include <vector>

#include "kernels/chunk_plan.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels {

enum class CpuPath { scalar, avx2, avx512 };
[[nodiscard]] CpuPath best_cpu_path() noexcept;  ///< what this processor has; same bits on every path
[[nodiscard]] std::string_view name(CpuPath path) noexcept;

/// Scratch of one read in flight: O(tensors + blocks), allocated once.
class CpuPass {
 public:
  explicit CpuPass(const ChunkPlan& plan, CpuPath path = best_cpu_path());

  /// Reads blocks [begin, end). data[i] is the address of tensor i (any alignment; may be null only
  /// where numel is 0). Disjoint ranges may run concurrently.
  void run_blocks(std::span<const void* const> data, int begin, int end) noexcept;

  /// After all blocks ran: combines in block order into out[i], one per tensor.
  void finish(std::span<TensorStats> out) noexcept;
};

}  // namespace gradvane::kernels
