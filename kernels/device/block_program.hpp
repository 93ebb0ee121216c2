#pragma once
// What a physical block of the pass does, from its first tensor to the publication of the read. Written
// for one thread of it, over a Lane: what such a thread can do. CUDA provides one (cuda_lane.cuh), the
// tests another, which runs a block's threads by turns on a host; so that all but the launch is tested
// without a device.
//
//   int thread(), block(), grid()         of kThreads, of the launch's physical blocks
//   void sync(), sync_warp()              barriers, for memory too
//   uint32_t ballot(bool), bool any(bool) of the warp
//   T shuffle_down(T, int distance)       of the warp: the value of the lane `distance` further on
//   void add(int64_t*, int64_t)           device-wide, in any order
//   void raise(uint64_t*, uint64_t)       device-wide: the larger one stays
//   uint32_t arrive(uint32_t*)            counts; what this block wrote before is seen, by the host too,
//                                         after what the last to arrive does next
//   void acquire()                        after arrive: sees what the others wrote
//   static Vector load(const std::byte*)  sixteen bytes, aligned to as much
//   void store_host(uint64_t*, uint64_t)  into the ring
//   void fence_host()                     stores to the ring before it come before those after it
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/chunk_plan.hpp"
#include "kernels/device/part_reader.hpp"
#include "kernels/device/pass_layout.hpp"
#include "kernels/device/ring_writer.hpp"
#include "kernels/running_totals.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

/// What the threads of a block share.
struct BlockMemory {
  TensorStats exact[kThreads];  ///< one a thread; TensorStats{} between parts
  Share shares[kThreads];
  TensorStats warp[kWarps];
  TensorStats part;
  double sums[kWarps];
  std::uint32_t large[kWarps];  ///< which shares, by their threads
  std::uint32_t tiny[kWarps];
  std::uint32_t is_last;
};

template <class Lane, class Launch>
class BlockProgram {
 public:
  GRADVANE_HOST_DEVICE BlockProgram(Lane& lane, const Launch& launch, BlockMemory& memory) noexcept
      : lane_(lane), launch_(launch), memory_(memory) {}

  GRADVANE_HOST_DEVICE void run() noexcept {
    memory_.exact[lane_.thread()] = TensorStats{};
    for (int block = launch_.block_begin + lane_.block(); block < launch_.block_end;
         block += lane_.grid()) {
      run_virtual_block(block);
    }
    lane_.sync();
    PassState& state = *launch_.tables.state;
    if (lane_.thread() == 0) {
      const auto blocks = static_cast<std::uint32_t>(lane_.grid());
      memory_.is_last = lane_.arrive(&state.blocks_done) == blocks - 1;
    }
    lane_.sync();
    if (!memory_.is_last) return;
    lane_.acquire();
    if (launch_.last) publish();
    if (lane_.thread() == 0) state.blocks_done = 0;
  }

 private:
  /// False where there is nothing to do.
  GRADVANE_HOST_DEVICE bool find_share(int block, std::int64_t tensor,
                                       Share& share) const noexcept {
    const ChunkPlanView& plan = launch_.tables.plan;
    if (tensor < launch_.tensor_begin || tensor >= launch_.tensor_end) return false;
    share.data = static_cast<const std::byte*>(launch_.data[tensor - launch_.tensor_begin]);
    if (plan.part_of(block, tensor, share.part)) {
      // What is absent is told of once, by the block where it begins.
      return !share.absent() || share.part.begin == 0;
    }
    // What is empty, by the block that passes over it.
    if (share.part.numel != 0 || tensor >= plan.starts[block + 1].tensor) return false;
    if (!share.absent()) share.data = nullptr;
    return true;
  }

  /// Absent and empty ones too.
  static GRADVANE_HOST_DEVICE bool is_tiny(const Share& share) noexcept {
    return share.absent() || share.part.numel <= kTinyBytes / size_in_bytes(share.part.dtype);
  }

  /// Tensors are dealt to the warps one by one, kThreads at a time. Tiny ones are read by their warp,
  /// the others by the whole block. Shares wait in the block's memory: a thread has no registers to
  /// spare for them while it reads.
  GRADVANE_HOST_DEVICE void run_virtual_block(int block) noexcept {
    const ChunkPlanView& plan = launch_.tables.plan;
    const ChunkPosition stop = plan.starts[block + 1];
    // A launch's own numbers, from 0: they take one register each, not two.
    const auto end = static_cast<int>(min_of(stop.tensor + (stop.chunk > 0), launch_.tensor_end) -
                                      launch_.tensor_begin);
    const int warp = lane_.thread() / kWarp;
    const int place = lane_.thread() % kWarp;
    const auto begin =
        static_cast<int>(max_of(plan.starts[block].tensor - launch_.tensor_begin, std::int64_t{0}));
    for (int first = begin; first < end; first += kThreads) {
      const int mine = place * kWarps + warp;
      Share& share = memory_.shares[mine];
      const bool here = find_share(block, launch_.tensor_begin + first + mine, share);
      const bool tiny = here && is_tiny(share);
      const std::uint32_t large = lane_.ballot(here && !tiny);
      const std::uint32_t small = lane_.ballot(tiny);
      if (place == 0) {
        memory_.large[warp] = large;
        memory_.tiny[warp] = small;
      }
      lane_.sync();
      for (int bit = 0; bit < kWarp; ++bit) {
        bit = next_bit(memory_.tiny[warp], bit);
        if (bit < kWarp) read_tiny(memory_.shares[bit * kWarps + warp]);
      }
      for (int of_warp = 0; of_warp < kWarps; ++of_warp) {
        for (int bit = 0; bit < kWarp; ++bit) {
          bit = next_bit(memory_.large[of_warp], bit);
          if (bit < kWarp) read_large(block, memory_.shares[bit * kWarps + of_warp]);
        }
      }
      lane_.sync();
    }
  }

  GRADVANE_HOST_DEVICE void read_tiny(const Share& share) noexcept {
    TensorStats& stats = memory_.warp[lane_.thread() / kWarp];
    if (share.absent()) {
      if (lane_.thread() % kWarp == 0) {
        stats = TensorStats{};
        stats.absence = static_cast<std::int16_t>(reinterpret_cast<std::uintptr_t>(share.data));
      }
    } else {
      read_share<kWarp>(share, stats);
    }
    lane_.sync_warp();
    finish_tensor(share.part.tensor, stats);
    lane_.sync_warp();
  }

  GRADVANE_HOST_DEVICE void read_large(int block, const Share& share) noexcept {
    read_share<kThreads>(share, memory_.warp[lane_.thread() / kWarp]);
    lane_.sync();
    if (lane_.thread() == 0) {
      TensorStats part = memory_.warp[0];
      for (int warp = 1; warp < kWarps; ++warp) merge(part, memory_.warp[warp]);
      memory_.part = part;
    }
    lane_.sync();
    if (share.part.whole()) {
      if (lane_.thread() < kWarp) finish_tensor(share.part.tensor, memory_.part);
    } else {
      hand_in(block, share.part);
    }
  }

  /// Leaves the part where the tensor's other parts are, and joins them if it is the last one.
  GRADVANE_HOST_DEVICE void hand_in(int block, const TensorPart& part) noexcept {
    const PassTables& tables = launch_.tables;
    const std::int64_t record = 2 * std::int64_t{block} + part.record();
    const Span span = tables.spans[record];
    if (lane_.thread() < kWarp) copy_stats(lane_, memory_.part, &tables.records[record]);
    lane_.sync();
    if (lane_.thread() == 0) {
      std::uint32_t* arrived = &tables.arrived[span.first];
      memory_.is_last = lane_.arrive(arrived) == static_cast<std::uint32_t>(span.parts) - 1;
      if (memory_.is_last) *arrived = 0;
    }
    lane_.sync();
    if (!memory_.is_last) return;
    lane_.acquire();
    join(span);
    if (lane_.thread() < kWarp) finish_tensor(part.tensor, memory_.exact[0]);
    lane_.sync();
    memory_.exact[lane_.thread()] = TensorStats{};
    lane_.sync();
  }

  /// Merges a span's records into exact[0]: thread t those of blocks t, t + kThreads, ... of the span,
  /// then thread t += thread t + width for widths kThreads / 2, ..., 1.
  GRADVANE_HOST_DEVICE void join(const Span& span) noexcept {
    const int thread = lane_.thread();
    TensorStats& mine = memory_.exact[thread];
    for (int i = thread; i < span.blocks; i += kThreads) {
      const std::int64_t record = 2 * std::int64_t{span.first + i} + (i == 0 ? 1 : 0);
      merge(mine, launch_.tables.records[record]);
    }
    lane_.sync();
    for (int width = kThreads / 2; width > 0; width /= 2) {
      if (width < span.blocks) {
        if (thread < width) merge(mine, memory_.exact[thread + width]);
        lane_.sync();
      }
    }
  }

  template <int kTeam>
  GRADVANE_HOST_DEVICE void read_share(const Share& share, TensorStats& into) noexcept {
    switch (share.part.dtype) {
      case DType::f32:
        return read_as<DType::f32, kTeam>(share, into);
      case DType::f64:
        return read_as<DType::f64, kTeam>(share, into);
      case DType::f16:
        return read_as<DType::f16, kTeam>(share, into);
      case DType::bf16:
        return read_as<DType::bf16, kTeam>(share, into);
    }
  }

  template <DType dtype, int kTeam>
  GRADVANE_HOST_DEVICE void read_as(const Share& share, TensorStats& into) noexcept {
    const int thread = lane_.thread();
    PartReader<dtype, kTeam, Lane> reader(lane_, share, memory_.exact[thread]);
    reader.read();
    TensorStats* exact_of_warp = memory_.exact + thread / kWarp * kWarp;
    fold_warp<dtype>(lane_, reader.tally(), reader.used_exact(), exact_of_warp, into);
    // The first warp's speaks for the whole part.
    if (thread % kTeam == 0) into.numel = share.part.end - share.part.begin;
  }

  /// By the threads of one warp: a tensor's final statistics go to the table, the ring and the counts.
  GRADVANE_HOST_DEVICE void finish_tensor(std::int64_t tensor, const TensorStats& stats) noexcept {
    const PassTables& tables = launch_.tables;
    copy_stats(lane_, stats, &tables.stats[tensor]);
    RingWriter<Lane>(lane_, tables.ring, tables.state->sequence + 1).write_stats(tensor, stats);
    if (lane_.thread() % kWarp == 0) {
      count_tensor(lane_, tables.state->read, tables.sites[tensor], tensor, stats);
    }
  }

  /// By the last block of the last launch: norm, totals, header, sequence number.
  GRADVANE_HOST_DEVICE void publish() noexcept {
    const PassTables& tables = launch_.tables;
    PassState& state = *tables.state;
    const double squares = sum_of_gradient_squares();
    if (lane_.thread() != 0) return;
    const std::uint64_t sequence = state.sequence + 1;
    const auto gradients = static_cast<int>(Site::grad);
    const std::int64_t* bad = state.read.elements[gradients];
    state.found_nonfinite = state.read.first[gradients] != 0 ? 1.0f : 0.0f;
    state.gradient_norm = ::sqrt(squares);
    if (state.found_nonfinite != 0) {
      state.gradient_norm = bad[static_cast<int>(NonfiniteKind::nan)] != 0
                                ? std::numeric_limits<double>::quiet_NaN()
                                : std::numeric_limits<double>::infinity();
    }
    accumulate_totals(state.totals, sequence, tables.plan_id, state.read, tables.stats);
    state.read = ReadCounts{};

    SlotHeader header;
    header.sequence = sequence;
    header.plan_id = tables.plan_id;
    header.tensors = min_of(tables.plan.tensor_count, tables.ring.max_tensors);
    header.token = launch_.token;
    header.totals = state.totals;
    RingWriter<Lane>(lane_, tables.ring, sequence).publish(header);
    state.sequence = sequence;
  }

  /// In thread 0: thread t adds tensors t, t + kThreads, ...; then as in fold_warp and by warp.
  GRADVANE_HOST_DEVICE double sum_of_gradient_squares() noexcept {
    const PassTables& tables = launch_.tables;
    const int thread = lane_.thread();
    double sum = 0;
    for (std::int64_t i = thread; i < tables.plan.tensor_count; i += kThreads) {
      const TensorStats& stats = tables.stats[i];
      if (tables.sites[i] != Site::grad || stats.numel <= 0) continue;
      sum += ::ldexp(stats.sum_sq, 2 * stats.scale_exp);
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += lane_.shuffle_down(sum, distance);
    }
    if (thread % kWarp == 0) memory_.sums[thread / kWarp] = sum;
    lane_.sync();
    sum = memory_.sums[0];
    for (int warp = 1; warp < kWarps; ++warp) sum += memory_.sums[warp];
    return sum;
  }

  /// The first set bit from `from` on, or kWarp.
  static GRADVANE_HOST_DEVICE int next_bit(std::uint32_t mask, int from) noexcept {
    mask = mask >> from << from;
#if defined(__CUDA_ARCH__)
    return mask == 0 ? kWarp : __ffs(static_cast<int>(mask)) - 1;
#else
    return mask == 0 ? kWarp : __builtin_ctz(mask);
#endif
  }
  template <class T>
  static GRADVANE_HOST_DEVICE constexpr T max_of(T a, T b) noexcept {
    return a < b ? b : a;
  }
  template <class T>
  static GRADVANE_HOST_DEVICE constexpr T min_of(T a, T b) noexcept {
    return b < a ? b : a;
  }

  Lane& lane_;
  const Launch& launch_;
  BlockMemory& memory_;
};

}  // namespace gradvane::kernels::device
