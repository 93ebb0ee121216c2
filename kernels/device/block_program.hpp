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
//   uint32_t arrive(uint32_t*)            counts; the block of the last to arrive sees, after its next
//                                         barrier, what the blocks of the others wrote before theirs
//   static Vector load(const std::byte*)  sixteen bytes, aligned to as much
//   static void prefetch_group(const std::byte*, int stride)  of a warp that will load kGroup such bytes a thread soon
//   void store_host(uint64_t*, uint64_t)  into the ring
//   void fence_host()                     stores to the ring before it, also those of blocks that arrived,
//                                         come before those after it
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/chunk_plan.hpp"
#include "kernels/device/field_merge.hpp"
#include "kernels/device/part_reader.hpp"
#include "kernels/device/pass_layout.hpp"
#include "kernels/device/ring_writer.hpp"
#include "kernels/running_totals.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

/// What the threads of a block share.
struct BlockMemory {
  TensorStats exact[kThreads];  ///< one a thread: what it read carefully or exactly
  Share shares[kThreads];
  TensorStats warp[2][kWarps];  ///< by turns: the first warp may still be at the last part's
  TensorStats half_warp[2 * kWarps];
  TensorStats part;
  PassState state;  ///< a copy, of the last block to finish
  SlotHeader header;
  std::uint64_t sequence;  ///< of the read in progress
  double sums[kWarps];
  std::uint32_t large[kWarps];  ///< which shares, by their threads
  std::uint32_t tiny[kWarps];
  std::uint32_t is_last;
  std::uint32_t is_scaled[kWarps];
  std::uint32_t turn[kWarps];  ///< by warp: which of `warp` its next part goes to
};

template <class Lane, class Launch>
class BlockProgram {
 public:
  GRADVANE_HOST_DEVICE BlockProgram(Lane& lane, const Launch& launch, BlockMemory& memory) noexcept
      : lane_(lane), launch_(launch), memory_(memory) {}

  GRADVANE_HOST_DEVICE void run() noexcept {
    if (lane_.thread() % kWarp == 0) memory_.turn[lane_.thread() / kWarp] = 0;
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
    if (launch_.last) {
      publish();
    } else if (lane_.thread() == 0) {
      state.blocks_done = 0;
    }
  }

 private:
  /// False where there is nothing to do.
  GRADVANE_HOST_DEVICE bool find_share(int block, std::int64_t tensor,
                                       Share& share) const noexcept {
    const ChunkPlanView& plan = launch_.tables.plan;
    if (tensor < launch_.tensor_begin || tensor >= launch_.tensor_end) return false;
    share.data = static_cast<const std::byte*>(launch_.data[tensor - launch_.tensor_begin]);
    share.site = launch_.tables.sites[tensor];
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
      // Asked for here, where the wait for it is also that for the shares.
      std::uint64_t last_sequence = 0;
      if (lane_.thread() == 0) last_sequence = launch_.tables.state->sequence;
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
      if (lane_.thread() == 0) memory_.sequence = last_sequence + 1;
      lane_.sync();
      for (int bit = 0; bit < kWarp; ++bit) {
        bit = next_bit(memory_.tiny[warp], bit);
        if (bit < kWarp) read_tiny(memory_.shares[bit * kWarps + warp]);
      }
      for (int large_share = next_large(0); large_share < kThreads;
           large_share = next_large(large_share + 1)) {
        read_large(block, memory_.shares[large_share % kWarp * kWarps + large_share / kWarp]);
      }
      lane_.sync();
    }
  }

  /// The first large share from `from` on, or kThreads; by warp and bit of memory_.large.
  GRADVANE_HOST_DEVICE int next_large(int from) noexcept {
    if (from >= kThreads) return kThreads;
    const int bit = next_bit(memory_.large[from / kWarp], from % kWarp);
    if (bit < kWarp) return from / kWarp * kWarp + bit;
    const int place = lane_.thread() % kWarp;
    const std::uint32_t warps = lane_.ballot(place < kWarps && memory_.large[place % kWarps] != 0);
    const int warp = from / kWarp + 1 < kWarps ? next_bit(warps, from / kWarp + 1) : kWarp;
    return warp == kWarp ? kThreads : warp * kWarp + next_bit(memory_.large[warp], 0);
  }

  GRADVANE_HOST_DEVICE void read_tiny(const Share& share) noexcept {
    TensorStats& stats = memory_.warp[0][lane_.thread() / kWarp];
    if (share.absent()) {
      if (lane_.thread() % kWarp == 0) {
        stats = TensorStats{};
        stats.absence = static_cast<std::int16_t>(reinterpret_cast<std::uintptr_t>(share.data));
      }
    } else {
      read_share<kWarp>(share, stats);
    }
    lane_.sync_warp();
    finish_tensor(share, stats);
    lane_.sync_warp();
  }

  GRADVANE_HOST_DEVICE void read_large(int block, const Share& share) noexcept {
    const int warp = lane_.thread() / kWarp;
    if (lane_.thread() % kWarp == 0) memory_.turn[warp] ^= 1;
    lane_.sync_warp();
    read_share<kThreads>(share, memory_.warp[memory_.turn[warp]][warp]);
    lane_.sync();
    if (warp == 0) merge_all(memory_.warp[memory_.turn[warp]], kWarps);
    if (!share.part.whole()) {
      hand_in(block, share);
    } else if (warp == 0) {
      finish_tensor(share, memory_.part);
    }
  }

  /// By the first warp: `count` partials, an even number of them, become memory_.part.
  GRADVANE_HOST_DEVICE void merge_all(const TensorStats* partials, int count) noexcept {
    FieldMerge<Lane> merge(lane_);
    GRADVANE_ROLL
    for (int i = merge.half(); i < count; i += 2) merge.add(merge.word_of(partials[i]), i);
    if (merge.is_scaled()) {
      if (lane_.thread() == 0) merge_one_by_one(memory_.part, partials, count);
    } else {
      merge.join_halves();
      if (merge.half() == 0) merge.store(memory_.part, partials);
    }
    lane_.sync_warp();
  }

  /// Leaves the part where the tensor's other parts are, and joins them if it is the last one.
  GRADVANE_HOST_DEVICE void hand_in(int block, const Share& share) noexcept {
    const PassTables& tables = launch_.tables;
    const Span span = tables.spans[2 * std::int64_t{block} + share.part.partial()];
    if (lane_.thread() < kWarp) {
      copy_stats(lane_, memory_.part, &tables.partials[span.first + span.own]);
      lane_.sync_warp();
      if (lane_.thread() == 0) {
        std::uint32_t* arrived = &tables.arrived[span.first];
        memory_.is_last = lane_.arrive(arrived) == static_cast<std::uint32_t>(span.parts) - 1;
        if (memory_.is_last) *arrived = 0;
      }
    }
    lane_.sync();
    if (!memory_.is_last) return;
    join(tables.partials + span.first, span.parts);
    if (lane_.thread() < kWarp) finish_tensor(share, memory_.part);
  }

  /// Merges a tensor's parts into memory_.part: half warp h parts h, h + 2 * kWarps, ..., then the first
  /// warp what the half warps have.
  GRADVANE_HOST_DEVICE void join(const TensorStats* partials, int parts) noexcept {
    constexpr int kHalves = 2 * kWarps;
    constexpr int kAtOnce = 13;  // loads in flight: two rounds for the parts of one tensor
    const int warp = lane_.thread() / kWarp;
    FieldMerge<Lane> merge(lane_);
    const int half_warp = 2 * warp + merge.half();
    GRADVANE_ROLL
    for (int first = half_warp; first - half_warp < parts; first += kHalves * kAtOnce) {
      std::uint64_t words[kAtOnce];
      GRADVANE_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * kHalves;
        words[j] = i < parts ? merge.word_of(partials[i]) : merge.empty();
      }
      GRADVANE_UNROLL
      for (int j = 0; j < kAtOnce; ++j) merge.add(words[j], first + j * kHalves);
    }
    merge.store(memory_.half_warp[half_warp], partials);
    const bool scaled = merge.is_scaled();
    if (lane_.thread() % kWarp == 0) memory_.is_scaled[warp] = scaled ? 1 : 0;
    lane_.sync();
    if (warp != 0) return;
    if (lane_.any(memory_.is_scaled[lane_.thread() % kWarps] != 0)) {
      if (lane_.thread() == 0) merge_one_by_one(memory_.part, partials, parts);
      lane_.sync_warp();
    } else {
      merge_all(memory_.half_warp, kHalves);
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
  GRADVANE_HOST_DEVICE void finish_tensor(const Share& share, const TensorStats& stats) noexcept {
    const PassTables& tables = launch_.tables;
    const std::int64_t tensor = share.part.tensor;
    copy_stats(lane_, stats, &tables.stats[tensor]);
    RingWriter<Lane>(lane_, tables.ring, memory_.sequence).write_stats(tensor, stats);
    if (lane_.thread() % kWarp == 0) {
      const bool counts = share.site == Site::grad;
      tables.squares[tensor] = counts ? ::ldexp(stats.sum_sq, 2 * stats.scale_exp) : 0.0;
      count_tensor(lane_, tables.state->read, share.site, tensor, stats);
    }
  }

  /// By the last block of the last launch: norm, totals, header, sequence number. The state is worked on in
  /// the block's memory: each look at the device's would be a wait.
  GRADVANE_HOST_DEVICE void publish() noexcept {
    const PassTables& tables = launch_.tables;
    const int thread = lane_.thread();
    constexpr int kStateWords = sizeof(PassState) / sizeof(std::uint64_t);
    static_assert(sizeof(PassState) % sizeof(std::uint64_t) == 0 && kStateWords <= kThreads);
    auto* const words = reinterpret_cast<std::uint64_t*>(&memory_.state);
    auto* const words_there = reinterpret_cast<std::uint64_t*>(tables.state);
    if (thread < kStateWords) words[thread] = words_there[thread];
    const double squares = sum_of_gradient_squares();
    if (thread >= kWarp) return;
    if (thread == 0) settle(memory_.state, squares);
    lane_.sync_warp();
    constexpr int kTotalsWords = sizeof(RunningTotals) / sizeof(std::uint64_t);
    static_assert(kTotalsWords <= kWarp);
    if (thread < kTotalsWords) {
      reinterpret_cast<std::uint64_t*>(&memory_.header.totals)[thread] =
          reinterpret_cast<const std::uint64_t*>(&memory_.state.totals)[thread];
    }
    lane_.sync_warp();
    for (int i = thread; i < kStateWords; i += kWarp) words_there[i] = words[i];
    RingWriter<Lane>(lane_, tables.ring, memory_.state.sequence).publish(memory_.header);
  }

  /// By one thread: makes the read in progress the last one, and its header but for the totals.
  GRADVANE_HOST_DEVICE void settle(PassState& state, double squares) noexcept {
    const PassTables& tables = launch_.tables;
    state.found_nonfinite = 0;
    state.nonfinite_gradients = 0;
    state.gradient_norm = ::sqrt(squares);
    ++state.sequence;
    state.blocks_done = 0;
    SlotHeader& header = memory_.header;
    header.sequence = state.sequence;
    header.plan_id = tables.plan_id;
    header.tensors = min_of(tables.plan.tensor_count, tables.ring.max_tensors);
    header.token = launch_.token;
    bool found = false;
    GRADVANE_ROLL
    for (int site = 0; site < kCountedSites; ++site) found |= state.read.first[site] != 0;
    if (found) count_nonfinite(state);
  }

  GRADVANE_HOST_DEVICE void count_nonfinite(PassState& state) noexcept {
    const auto gradients = static_cast<int>(Site::grad);
    if (state.read.first[static_cast<int>(Site::loss)] != 0) state.found_nonfinite = 1;
    if (state.read.first[gradients] != 0) {
      state.found_nonfinite = 1;
      state.nonfinite_gradients = 1;
      state.gradient_norm =
          state.read.elements[gradients][static_cast<int>(NonfiniteKind::nan)] != 0
              ? std::numeric_limits<double>::quiet_NaN()
              : std::numeric_limits<double>::infinity();
    }
    accumulate_totals(state.totals, state.sequence, launch_.tables.plan_id, state.read,
                      launch_.tables.stats);
    state.read = ReadCounts{};
  }

  /// In thread 0: thread t adds tensors t, t + kThreads, ...; then as in fold_warp and by warp.
  GRADVANE_HOST_DEVICE double sum_of_gradient_squares() noexcept {
    constexpr int kAtOnce = 8;  // loads in flight
    const PassTables& tables = launch_.tables;
    const int thread = lane_.thread();
    const std::int64_t count = tables.plan.tensor_count;
    double sum = 0;
    for (std::int64_t first = thread; first < count; first += kAtOnce * kThreads) {
      double squares[kAtOnce];
      GRADVANE_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const std::int64_t i = first + j * kThreads;
        squares[j] = i < count ? tables.squares[i] : 0.0;
      }
      GRADVANE_UNROLL
      for (int j = 0; j < kAtOnce; ++j) sum += squares[j];
    }
    GRADVANE_ROLL
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
