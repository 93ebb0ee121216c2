#pragma once
// One thread's share of a part: which vectors it loads, in which order it adds them, and how the shares
// of a warp become one TensorStats. Order is part of the result:
//   - Elements before the first 16-byte boundary are read by thread 0, those behind the last one by
//     thread 1, exactly.
//   - A group that the fast path refuses is read carefully, two vectors at once; of fp64 exactly. What the thread has summed
//     before is moved to where those sums go.
//   - The vectors between are taken in groups of kGroup * team: thread t loads numbers t, t + team, ...
//     The last group is filled up with zeros.
//   - A warp folds lane i += lane i + distance for distances 16, 8, 4, 2, 1; then come what even lanes have read
//     carefully or exactly, in the order of lanes, and that of odd ones; fp64 at a scale in the order of all lanes.
#include <cstddef>
#include <cstdint>

#include "kernels/chunk_plan.hpp"
#include "kernels/device/careful.hpp"
#include "kernels/device/field_merge.hpp"
#include "kernels/device/group.hpp"
#include "kernels/device/pass_layout.hpp"
#include "kernels/element.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

/// A virtual block's share of one tensor, as one launch sees it.
struct Share {
  const std::byte* data = nullptr;  ///< of the tensor's first element; below kAddressLimit: absent
  TensorPart part;
  Site site = Site::grad;

  [[nodiscard]] GRADVANE_HOST_DEVICE bool absent() const noexcept {
    return reinterpret_cast<std::uintptr_t>(data) < kAddressLimit;
  }
};

template <DType dtype, int kTeam, class Lane>
class PartReader {
 public:
  /// @param exact  this thread's, for what the fast path refuses, and what is no whole vector
  GRADVANE_HOST_DEVICE PartReader(Lane& lane, const Share& share, TensorStats& exact) noexcept
      : lane_(lane), thread_(lane.thread() % kTeam), share_(share), exact_(exact) {}

  /// The tensor's first element is aligned to its size, its vectors need not be to theirs.
  GRADVANE_HOST_DEVICE void read() noexcept {
    const std::byte* const at = share_.data + share_.part.begin * kSize;
    const std::int64_t count = share_.part.end - share_.part.begin;
    const std::int64_t before = elements_before<dtype>(at, count);
    const std::int64_t vectors = (count - before) / kPerVector;
    // First, so that nothing of it is in the way of the loops.
    if (thread_ == 0 && before > 0) exactly(at, static_cast<int>(before), 1);
    const auto behind = static_cast<int>((count - before) % kPerVector);
    if (thread_ == 1 && behind > 0) exactly(at + (count - behind) * kSize, behind, 1);

    const std::byte* mine = at + before * kSize + thread_ * kVectorBytes;
    auto left = static_cast<int>(vectors / kStep);
    while (left > 0)
      if (read_plain(mine, left) || read_counting(mine, left)) read_special(mine, left);
    read_rest(mine, static_cast<int>(vectors % kStep));
  }

  [[nodiscard]] GRADVANE_HOST_DEVICE const Tally<dtype>& tally() const noexcept { return tally_; }
  /// Whether `exact` has anything in it.
  [[nodiscard]] GRADVANE_HOST_DEVICE bool used_exact() const noexcept { return used_exact_; }

 private:
  static constexpr int kVectorBytes = sizeof(Vector);
  static constexpr std::int64_t kSize = size_in_bytes(dtype);
  static constexpr int kPerVector = static_cast<int>(kVectorBytes / kSize);
  static constexpr int kStride = kTeam * kVectorBytes;  ///< between a thread's vectors
  static constexpr std::int64_t kStep = std::int64_t{kTeam} * kGroup;

  static GRADVANE_HOST_DEVICE Group load(const std::byte* mine) noexcept {
    Group group;
    GRADVANE_UNROLL
    for (int i = 0; i < kGroup; ++i) group.vector[i] = Lane::load(mine + i * kStride);
    return group;
  }

  /// Groups without zeros, up to the first that holds one in any lane of the warp, or to the one behind a group that
  /// any lane refuses. Both ways are the whole warp's: lanes that differ would make it go both, one after the other.
  /// Whether any lane has refused one: data that is all NaN would be loaded twice here, for no zero ends the loop.
  GRADVANE_HOST_DEVICE bool read_plain(const std::byte*& mine, int& left) noexcept {
    bool refused = false;
    if constexpr (dtype != DType::f64) {
      for (; left > 0; --left, mine += kStep * kVectorBytes) {
        const Group group = load(mine);
        const auto min = smallest<dtype>(group);
        if (lane_.any(refused || below_normal<dtype>(min))) break;
        if (!add_sums<dtype>(group, min, tally_)) [[unlikely]] {
          refused = carefully(mine, kGroup);
        }
      }
    }
    return lane_.any(refused);
  }

  /// Groups with zeros. It leaves at a group that has none, but looks only at each eighth one: each way back from the plain
  /// loop loads a group again, and rows of zeros come and go. Where a lane has refused a group, it leaves at the first that
  /// has no zeros. Whether any lane has refused one.
  GRADVANE_HOST_DEVICE bool read_counting(const std::byte*& mine, int& left) noexcept {
    bool stays = true;
    bool refused = false;
    for (; left > 0 && stays; --left, mine += kStep * kVectorBytes) {
      const Group group = load(mine);
      bool found = false;
      if (!add_counting<dtype>(group, 0, found, tally_)) [[unlikely]] {
        found = false;
        refused = carefully(mine, kGroup);
      }
      stays = lane_.any(found);
      if (!stays && left % 8 != 0) stays = !lane_.any(refused);
    }
    return lane_.any(refused);
  }

  /// Groups that the fast path would refuse in any lane of the warp, and the first that it would not.
  GRADVANE_HOST_DEVICE void read_special(const std::byte*& mine, int& left) noexcept {
    bool is_special = true;
    for (; left > 0 && is_special; --left, mine += kStep * kVectorBytes)
      is_special = lane_.any(carefully(mine, kGroup));
  }

  /// The last group, of fewer vectors: filled up with zeros.
  GRADVANE_HOST_DEVICE void read_rest(const std::byte* mine, int vectors_of_team) noexcept {
    if (thread_ >= vectors_of_team) return;
    const int vectors = (vectors_of_team - thread_ + kTeam - 1) / kTeam;
    Group group;
    GRADVANE_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      group.vector[i] = i < vectors ? Lane::load(mine + i * kStride) : Vector{};
    }
    const auto padding = static_cast<std::uint32_t>((kGroup - vectors) * kPerVector);
    bool found = false;
    if (!add_counting<dtype>(group, padding, found, tally_)) (void)carefully(mine, vectors);
  }

  GRADVANE_HOST_DEVICE void exactly(const std::byte* at, int elements, int vectors) noexcept {
    read_exactly<dtype>(share_.data, at, elements, vectors, kStride, !used_exact_, exact_);
    used_exact_ = true;
  }

  /// Whole vectors. Whether the fast path refuses them.
  GRADVANE_HOST_DEVICE bool carefully(const std::byte* at, int vectors) noexcept {
    if constexpr (dtype == DType::f64) {
      exactly(at, kPerVector, vectors);
      return false;
    } else {
      settle();
      return read_carefully<dtype, Lane>(share_.data, at, vectors, kStride, exact_);
    }
  }

  /// Moves the tally to the block's memory, so that its registers are free for what is called.
  GRADVANE_HOST_DEVICE void settle() noexcept {
    if (!used_exact_) exact_ = TensorStats{};
    used_exact_ = true;
    add_tally(tally_, exact_);
    tally_ = {};
  }

  Lane& lane_;
  int thread_;
  const Share& share_;
  TensorStats& exact_;
  Tally<dtype> tally_;
  bool used_exact_ = false;
};

/// Adds what the set lanes of a warp have in `exact_of_warp` to what its first lane has in `into`. By the whole warp: one
/// lane alone took 14 us longer (H200). Out of line: rare.
template <class Lane>
GRADVANE_OUT_OF_LINE GRADVANE_HOST_DEVICE inline void add_exact(Lane& lane,
                                                                const TensorStats* exact_of_warp,
                                                                std::uint32_t lanes,
                                                                TensorStats& into) noexcept {
  lane.sync_warp();  // a vote orders no memory
  FieldMerge<Lane> merge(lane);
  if (merge.half() == 0) merge.add(merge.word_of(into), 0);
  GRADVANE_ROLL
  for (int i = merge.half(); i < kWarp; i += 2)
    merge.add((lanes >> i & 1) != 0 ? merge.word_of(exact_of_warp[i]) : merge.empty(), i);
  lane.sync_warp();  // all have read `into`
  if (merge.is_scaled()) {
    if (lane.thread() % kWarp == 0) merge_lanes(into, exact_of_warp, lanes);
  } else {
    merge.join_halves();
    if (merge.half() == 0) merge.store(into, exact_of_warp);
  }
  lane.sync_warp();
  if (lane.thread() % kWarp == 0) into.numel = 0;  // of what was read exactly only
}

/// Makes a warp's shares one, in its first lane's `into`; all lanes call it, with their `exact`s side by
/// side in `exact_of_warp`. numel is the caller's to set.
/// A part holds fewer than 2^32 elements: plans of more than 2^32 * kMaxBlocks do not exist.
template <DType dtype, class Lane>
GRADVANE_HOST_DEVICE inline void fold_warp(Lane& lane, Tally<dtype> tally, bool used_exact,
                                           TensorStats* exact_of_warp, TensorStats& into) noexcept {
  Extremes extremes = tally.extremes();
  std::uint32_t zero = tally.zero;
  std::uint32_t subnormal = tally.subnormals();
  GRADVANE_ROLL
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    tally.sum += lane.shuffle_down(tally.sum, distance);
    tally.sum_abs += lane.shuffle_down(tally.sum_abs, distance);
    tally.sum_sq += lane.shuffle_down(tally.sum_sq, distance);
    const std::uint64_t max = lane.shuffle_down(extremes.max, distance);
    const std::uint64_t min = lane.shuffle_down(extremes.min, distance);
    if (max > extremes.max) extremes.max = max;
    if (min < extremes.min) extremes.min = min;
    zero += lane.shuffle_down(zero, distance);
    subnormal += lane.shuffle_down(subnormal, distance);
  }
  const std::uint32_t exact_lanes = lane.ballot(used_exact);
  if (lane.thread() % kWarp == 0) {
    TensorStats stats;
    stats.sum = tally.sum;
    stats.sum_abs = tally.sum_abs;
    stats.sum_sq = tally.sum_sq;
    stats.zero = zero;
    stats.subnormal = subnormal;
    if (extremes.max != 0) {
      stats.abs_max = value<dtype>(static_cast<Bits<dtype>>(extremes.max));
      stats.abs_min_nonzero = value<dtype>(static_cast<Bits<dtype>>(extremes.min));
    }
    into = stats;
  }
  if (exact_lanes != 0) add_exact(lane, exact_of_warp, exact_lanes, into);
  lane.sync_warp();
}

}  // namespace gradvane::kernels::device
