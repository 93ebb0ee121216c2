#pragma once
// What a device needs in its memory to run the pass, as plain structs: filled in on the host, read by
// the kernel, and by tests that play the kernel.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/chunk_plan.hpp"
#include "kernels/running_totals.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;  ///< of a physical block
inline constexpr int kWarps = kThreads / kWarp;

/// Three for each of the 132 multiprocessors of an H100, as many as are resident there: one round. The
/// number is the same on every device, so that the bits of the result are, too.
inline constexpr int kMaxBlocks = 396;

/// A tensor of at most this is read by one warp, without a barrier.
inline constexpr std::int64_t kTinyBytes = 8192;

/// Where a part of a tensor that is split among blocks leaves its partial: those of a tensor are side by
/// side, in order.
struct Span {
  std::int32_t first = 0;  ///< the partial of the tensor's first part
  std::int32_t own = 0;    ///< which part it is, from 0
  std::int32_t parts = 0;  ///< of the tensor; 0: nothing is split here
};

/// A read in progress and all reads before it. Zero bytes are the state before the first.
struct PassState {
  std::uint64_t sequence = 0;  ///< of the last read published
  RunningTotals totals;
  ReadCounts read;                ///< of the read in progress
  std::uint32_t blocks_done = 0;  ///< physical blocks of the launch in progress
  // Of the last read, for whoever clips or skips on the device.
  float found_nonfinite = 0;      ///< 1 where a gradient or the loss held one
  float nonfinite_gradients = 0;  ///< 1 where a gradient did
  double gradient_norm = 0;       ///< as torch has it: NaN or +Inf where a gradient holds one
};
static_assert(std::is_trivially_copyable_v<PassState>);

/// Where results go: a ResultRing's memory as the device sees it. See slot_ring.hpp and result_ring.hpp.
struct RingTarget {
  std::byte* memory = nullptr;
  std::uint64_t slots = 0;
  std::uint64_t stride_bytes = 0;
  std::int64_t max_tensors = 0;
};

/// One plan's tables. All pointers are the device's.
struct PassTables {
  ChunkPlanView plan;
  const Span* spans = nullptr;       ///< 2 * blocks: by block and TensorPart::partial()
  const Site* sites = nullptr;       ///< by tensor
  TensorStats* partials = nullptr;   ///< at most 2 * blocks; see Span
  std::uint32_t* arrived = nullptr;  ///< by Span::first; 0 between reads
  TensorStats* stats = nullptr;      ///< by tensor: the read in progress, or the last one
  double* squares = nullptr;         ///< by tensor: its sum of squares, 0 where it is no gradient
  PassState* state = nullptr;
  RingTarget ring;
  std::uint64_t plan_id = 0;
};

/// An address below this says why a tensor is not there: its `absence` is published as that number.
inline constexpr std::uintptr_t kAddressLimit = 64;

/// One kernel launch: tensors [tensor_begin, tensor_end) of the plan, all of whose blocks are in
/// [block_begin, block_end). kPointers bounds the tensors of one launch.
template <std::size_t kPointers>
struct Launch {
  PassTables tables;
  std::uint64_t token = 0;  ///< carried by the slot: tells which host call a read belongs to
  std::int64_t tensor_begin = 0;
  std::int64_t tensor_end = 0;
  std::int32_t block_begin = 0;
  std::int32_t block_end = 0;
  bool last = true;                  ///< of its read: publishes
  const void* data[kPointers] = {};  ///< by tensor - tensor_begin
  double max_norm = 0;               ///< of a clip, see scale_program.hpp
};
/// What fits into a kernel's parameters: 32,764 bytes, from CUDA 12.1 and sm_70 on; and a small block
/// for the usual model, which is copied at every launch.
inline constexpr std::size_t kManyPointers = 4064;
inline constexpr std::size_t kFewPointers = 480;
inline constexpr std::size_t kParameterBytes = 32764;
static_assert(std::is_trivially_copyable_v<Launch<kManyPointers>>);
static_assert(sizeof(Launch<kManyPointers>) <= kParameterBytes);
static_assert(sizeof(Launch<kFewPointers>) <= 4096);

}  // namespace gradvane::kernels::device
