#pragma once
// The statistics pass on the CPU: every tensor of a plan in one read, over ranges of virtual blocks so
// that the caller brings the threads.
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/chunk_plan.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels {

struct ReadPartTable;

enum class CpuPath : std::uint8_t { scalar, avx2, avx512 };
[[nodiscard]] bool supported(CpuPath path) noexcept;  ///< by this build, processor and system
[[nodiscard]] CpuPath best_cpu_path() noexcept;  ///< the fastest that is; same bits on every path
[[nodiscard]] std::string_view name(CpuPath path) noexcept;  ///< "scalar", "avx2", "avx512"

/// Scratch of one read in flight: O(tensors + blocks), allocated once. One read is: all blocks once, in
/// any order and on any threads, then finish(); the next read may follow. The result is the same in
/// every bit whatever the order, the threads, the path and the alignment.
class CpuPass {
 public:
  /// Keeps a copy of the plan, which is cheap. Throws std::invalid_argument if the path is not
  /// supported here.
  explicit CpuPass(const ChunkPlan& plan, CpuPath path = best_cpu_path());

  [[nodiscard]] const ChunkPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] int blocks() const noexcept { return plan_.blocks(); }
  [[nodiscard]] CpuPath path() const noexcept { return path_; }

  /// Reads blocks [begin, end). data[i] is the address of tensor i, of any alignment; null: the
  /// tensor is not there this time, and its statistics come out empty. Disjoint ranges may run concurrently. Takes no account of the thread's
  /// rounding mode, flush-to-zero or exception masks, and leaves them as they were.
  void run_blocks(std::span<const void* const> data, int begin, int end) noexcept;

  /// After all blocks ran, and happened before this call: combines in block order into out[i], one
  /// per tensor.
  void finish(std::span<TensorStats> out) noexcept;

  /// What this object holds on the heap, the shared plan left out.
  [[nodiscard]] std::int64_t memory_bytes() const noexcept;

 private:
  ChunkPlan plan_;
  CpuPath path_;
  const ReadPartTable* table_;
  std::vector<TensorStats> whole_;  // by tensor; valid where one block read it all
  std::vector<std::array<TensorStats, 2>> partials_;  // by block; see TensorPart::partial
};

}  // namespace gradvane::kernels
