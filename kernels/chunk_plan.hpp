#pragma once
// How the tensors of one read are cut into chunks and dealt to a fixed number of virtual blocks.
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/dtype.hpp"
#include "kernels/host_device.hpp"

namespace gradvane::kernels {

/// All that the plan needs of a tensor; its address may change from step to step.
struct TensorShape {
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

inline constexpr std::int64_t kChunkBytes = 32768;

/// Constants by dtype: a device has no instruction to divide.
GRADVANE_HOST_DEVICE constexpr std::int64_t chunk_elements(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return kChunkBytes / 8;
    case DType::f32:
      return kChunkBytes / 4;
    case DType::f16:
    case DType::bf16:
      break;
  }
  return kChunkBytes / 2;
}
GRADVANE_HOST_DEVICE constexpr std::int64_t chunk_count(const TensorShape& tensor) noexcept {
  const std::int64_t per_chunk = chunk_elements(tensor.dtype);
  return tensor.numel / per_chunk + (tensor.numel % per_chunk != 0);
}

/// A place between two chunks: before chunk `chunk` of tensor `tensor`, which has one there; or, with
/// chunk 0, at the end of all tensors.
struct ChunkPosition {
  std::int64_t tensor = 0;
  std::int64_t chunk = 0;
  friend bool operator==(const ChunkPosition&, const ChunkPosition&) = default;
};

/// A block's share of one tensor: elements [begin, end), never empty. It starts at a chunk.
struct TensorPart {
  std::int64_t tensor = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t numel = 0;  ///< of the whole tensor
  DType dtype = DType::f32;

  [[nodiscard]] GRADVANE_HOST_DEVICE constexpr bool whole() const noexcept {
    return begin == 0 && end == numel;
  }
  /// Which of its block's two partials a part that is not whole goes to: 0 if the tensor began in an
  /// earlier block (then this is the block's first part), 1 if it began here (then its last one).
  [[nodiscard]] GRADVANE_HOST_DEVICE constexpr int partial() const noexcept {
    return begin == 0 ? 1 : 0;
  }
};

/// The plan as plain pointers, for a kernel's parameters. Block b owns [starts[b], starts[b + 1]).
struct ChunkPlanView {
  const TensorShape* tensors = nullptr;
  const ChunkPosition* starts = nullptr;  ///< blocks + 1 of them
  std::int64_t tensor_count = 0;
  int blocks = 0;

  /// What the block has of a tensor; false: nothing. `part` is filled in for any tensor that the block
  /// touches or passes over.
  GRADVANE_HOST_DEVICE constexpr bool part_of(int block, std::int64_t tensor,
                                              TensorPart& part) const noexcept {
    const ChunkPosition from = starts[block];
    const ChunkPosition to = starts[block + 1];
    if (tensor < from.tensor || tensor > to.tensor || tensor >= tensor_count) return false;
    const TensorShape shape = tensors[tensor];
    const std::int64_t per_chunk = chunk_elements(shape.dtype);
    const std::int64_t begin = tensor == from.tensor ? from.chunk * per_chunk : 0;
    const std::int64_t end = tensor == to.tensor ? to.chunk * per_chunk : shape.numel;
    part = {tensor, begin, end, shape.numel, shape.dtype};
    return begin < end;
  }

  /// Calls visit(TensorPart) for each tensor that the block touches, in order.
  template <typename Visit>
  GRADVANE_HOST_DEVICE void for_each_part(int block, Visit&& visit) const {
    TensorPart part;
    for (std::int64_t tensor = starts[block].tensor; tensor <= starts[block + 1].tensor; ++tensor) {
      if (part_of(block, tensor, part)) visit(part);
    }
  }
};

/// Made once per set of shapes, on the host; immutable afterwards, safe to share between threads and
/// cheap to copy.
///
/// A tensor is cut into chunks of at most kChunkBytes. A virtual block owns a contiguous range of
/// chunks of about equal cost, so that it touches few tensors: those wholly inside it are finished
/// there, and at most two (the first and the last) leave a partial, to be combined in block
/// order. The number of blocks depends on the tensors alone, not on the machine, so that neither do
/// the bits of the result.
class ChunkPlan {
 public:
  static constexpr std::int64_t kChunkBytes = kernels::kChunkBytes;
  static constexpr int kMaxBlocks = 528;  ///< for a CPU's threads
  /// What a chunk costs beside its bytes, in bytes: so that a thousand tiny tensors do not end up in
  /// one block because together they hold little.
  static constexpr std::int64_t kChunkOverheadBytes = 1024;

  /// Throws std::invalid_argument on a negative size or an unknown dtype, where the sizes add up to
  /// more than 2^62 bytes, and unless max_blocks > 0.
  explicit ChunkPlan(std::span<const TensorShape> tensors, int max_blocks = kMaxBlocks);

  [[nodiscard]] std::span<const TensorShape> tensors() const noexcept;
  [[nodiscard]] std::int64_t bytes() const noexcept;  ///< of all elements
  /// 0 where there is nothing to read.
  [[nodiscard]] int blocks() const noexcept { return view().blocks; }
  /// Valid as long as this plan or a copy of it.
  [[nodiscard]] const ChunkPlanView& view() const noexcept { return view_; }
  /// What the plan holds on the heap.
  [[nodiscard]] std::int64_t memory_bytes() const noexcept;

 private:
  struct Tables;
  std::shared_ptr<const Tables> tables_;
  ChunkPlanView view_;
};

}  // namespace gradvane::kernels
