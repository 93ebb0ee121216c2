#pragma once
// What must never be lost: how many non-finite elements each site has shown since the run began, and
// the first of them. Host and device, so that whoever publishes a read also keeps these.
#include <cstdint>
#include <type_traits>

#include "kernels/host_device.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels {

/// What a tensor of a read is. A `scalar` is only carried: a learning rate that is NaN is no incident.
enum class Site : std::uint8_t { loss, grad, weight, scalar };
inline constexpr int kCountedSites = 3;  ///< loss, grad, weight

/// The first non-finite element a site ever showed; sticky.
struct FirstBad {
  std::uint64_t sequence = 0;  ///< of the read that saw it; 0: none yet
  std::uint64_t plan_id = 0;
  std::int64_t tensor = -1;   ///< index in that plan: the smallest one of that read
  std::int64_t element = -1;  ///< linear index in memory order
  std::int64_t kind = -1;     ///< NonfiniteKind of that element, -1 if none yet
};

/// Running totals since the ring's stream of reads began: carried by every slot, so that a dropped
/// slot loses detail but never the fact. Plain arrays: std::array's members are host functions.
struct RunningTotals {
  std::int64_t elements[kCountedSites][kNonfiniteKinds] = {};  ///< by Site and NonfiniteKind
  std::int64_t reads[kCountedSites] = {};  ///< reads with at least one non-finite element
  FirstBad first[kCountedSites] = {};
};
static_assert(std::is_trivially_copyable_v<RunningTotals>);
static_assert(sizeof(RunningTotals) == (9 + 3 + 3 * 5) * 8);

/// Brings totals of another ring in; `first` stays that of `into`: sequence numbers of two rings say
/// nothing of each other.
inline void add_totals(RunningTotals& into, const RunningTotals& more) noexcept {
  for (int site = 0; site < kCountedSites; ++site) {
    for (int kind = 0; kind < kNonfiniteKinds; ++kind)
      into.elements[site][kind] += more.elements[site][kind];
    into.reads[site] += more.reads[site];
  }
}

/// What one read found, before it becomes part of the totals. Zero bytes are an empty read, and every
/// field only grows: so that many threads can add to it in any order.
struct ReadCounts {
  std::int64_t elements[kCountedSites][kNonfiniteKinds] = {};
  /// The complement of the smallest tensor that held one: the largest complement; 0: none.
  std::uint64_t first[kCountedSites] = {};
};
static_assert(std::is_trivially_copyable_v<ReadCounts>);

/// Adds finished statistics of tensor number `tensor` to a read.
/// @param memory  how to write: add(std::int64_t*, std::int64_t) and raise(std::uint64_t*, std::uint64_t)
template <class Memory>
GRADVANE_HOST_DEVICE inline void count_tensor(Memory&& memory, ReadCounts& read, Site site,
                                              std::int64_t tensor,
                                              const TensorStats& stats) noexcept {
  const auto s = static_cast<int>(site);
  if (s >= kCountedSites || stats.nonfinite() == 0) return;
  memory.add(&read.elements[s][static_cast<int>(NonfiniteKind::nan)], stats.nan);
  memory.add(&read.elements[s][static_cast<int>(NonfiniteKind::pos_inf)], stats.pos_inf);
  memory.add(&read.elements[s][static_cast<int>(NonfiniteKind::neg_inf)], stats.neg_inf);
  memory.raise(&read.first[s], ~static_cast<std::uint64_t>(tensor));
}

/// Adds a whole read to the totals.
/// @param sequence  of the read, from 1
/// @param stats     finished statistics by tensor
GRADVANE_HOST_DEVICE inline void accumulate_totals(RunningTotals& totals, std::uint64_t sequence,
                                                   std::uint64_t plan_id, const ReadCounts& read,
                                                   const TensorStats* stats) noexcept {
  for (int site = 0; site < kCountedSites; ++site) {
    if (read.first[site] == 0) continue;
    for (int kind = 0; kind < kNonfiniteKinds; ++kind) {
      totals.elements[site][kind] += read.elements[site][kind];
    }
    ++totals.reads[site];
    if (totals.first[site].sequence != 0) continue;
    const auto tensor = static_cast<std::int64_t>(~read.first[site]);
    totals.first[site] = {sequence, plan_id, tensor, stats[tensor].first_nonfinite,
                          stats[tensor].first_kind};
  }
}

/// Adds one read of `count` tensors to the totals: the two steps above, in one thread.
/// @param sites, stats  [count] one per tensor
inline void accumulate_totals(RunningTotals& totals, std::uint64_t sequence, std::uint64_t plan_id,
                              const Site* sites, const TensorStats* stats,
                              std::int64_t count) noexcept {
  struct OneThread {
    static void add(std::int64_t* to, std::int64_t value) noexcept { *to += value; }
    static void raise(std::uint64_t* to, std::uint64_t value) noexcept {
      if (*to < value) *to = value;
    }
  };
  ReadCounts read;
  for (std::int64_t i = 0; i < count; ++i) count_tensor(OneThread{}, read, sites[i], i, stats[i]);
  accumulate_totals(totals, sequence, plan_id, read, stats);
}

}  // namespace gradvane::kernels
