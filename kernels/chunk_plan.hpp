#pragma once
// How the tensors of one read are cut into chunks and dealt to a fixed number of virtual blocks.
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dtype.hpp"

namespace gradvane::kernels {

/// All that the plan needs of a tensor; its address may change from step to step.
struct TensorShape {
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

/// Made once per set of shapes, on the host; immutable afterwards and safe to share between threads.
///
/// A tensor is cut into chunks of at most kChunkBytes. Virtual block b owns a contiguous range of
/// chunks, so that it touches few tensors; the number of blocks does not depend on the machine, so
/// that neither do the bits of the result.
class ChunkPlan {
 public:
  static constexpr std::int64_t kChunkBytes = 32768;
  static constexpr int kMaxBlocks = 528;

  explicit ChunkPlan(std::span<const TensorShape> tensors);

  [[nodiscard]] std::span<const TensorShape> tensors() const noexcept { return tensors_; }
  [[nodiscard]] int blocks() const noexcept;
  // first tensor and chunk of a block, chunk ranges ...: for the pass
 private:
  std::vector<TensorShape> tensors_;
};

}  // namespace gradvane::kernels
