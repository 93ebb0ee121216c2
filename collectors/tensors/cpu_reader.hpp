#pragma once
// Reads a list of CPU tensors in one pass on the calling thread and torch's own intra-op threads.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/tensor_view.hpp"
#include "kernels/chunk_plan.hpp"
#include "kernels/cpu_pass.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::collectors {

/// One list of entries, read again and again. Memory is fixed by resize(); a read allocates only when
/// an entry's size or dtype is no longer what the chunk plan was made for (counted by rebuilds()), or
/// when a tensor is not dense (counted by copies()). Training thread only; never throws after resize().
class CpuReader {
 public:
  /// Room for `entries` tensors. Allocates.
  void resize(std::size_t entries);

  /// Puts a tensor at `entry`. `tag` other than `read` leaves it out.
  void set(std::size_t entry, const Tensor& tensor, EntryTag tag) noexcept;
  /// Puts one number at `entry`, read from `value` when read() runs.
  void set_scalar(std::size_t entry, const double* value) noexcept;

  /// Reads what was set since the last read; an entry that was not is missing. False where memory for a
  /// new chunk plan was not to be had: then nothing was read.
  bool read() noexcept;

  /// One per entry, in row-major indices, until the next read(); see EntryTag for those left out.
  [[nodiscard]] std::span<const kernels::TensorStats> stats() const noexcept { return stats_; }
  /// Sum of squares of all entries before `count`, as the square of an L2 norm.
  [[nodiscard]] double sum_sq(std::size_t count) const noexcept;

  [[nodiscard]] std::int32_t copies() const noexcept { return copies_; }      ///< in the last read
  [[nodiscard]] std::int64_t rebuilds() const noexcept { return rebuilds_; }  ///< since resize()

 private:
  void make_plan();
  void finish_entry(std::size_t entry) noexcept;

  struct Entry {
    TensorView view;
    const Tensor* tensor = nullptr;  ///< for the way back from memory order
    EntryTag tag = EntryTag::missing;
  };
  std::vector<Entry> entries_;
  std::vector<kernels::TensorShape> shapes_;  ///< what the plan was made for
  std::vector<const void*> data_;
  std::vector<kernels::TensorStats> stats_;
  std::unique_ptr<kernels::ChunkPlan> plan_;
  std::unique_ptr<kernels::CpuPass> pass_;
  std::int32_t copies_ = 0;
  std::int64_t rebuilds_ = 0;
};

}  // namespace gradvane::collectors
