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

/// Adds one read of `count` tensors to the totals.
/// @param sequence  of the read, from 1
/// @param sites     [count] what each tensor is
/// @param stats     [count] finished statistics, one per tensor
GRADVANE_HOST_DEVICE inline void accumulate_totals(RunningTotals& totals, std::uint64_t sequence,
                                                   std::uint64_t plan_id, const Site* sites,
                                                   const TensorStats* stats,
                                                   std::int64_t count) noexcept {
  bool seen[kCountedSites] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto site = static_cast<int>(sites[i]);
    if (site >= kCountedSites || stats[i].nonfinite() == 0) continue;
    std::int64_t* elements = totals.elements[site];
    elements[static_cast<int>(NonfiniteKind::nan)] += stats[i].nan;
    elements[static_cast<int>(NonfiniteKind::pos_inf)] += stats[i].pos_inf;
    elements[static_cast<int>(NonfiniteKind::neg_inf)] += stats[i].neg_inf;
    seen[site] = true;
    if (totals.first[site].sequence == 0) {
      totals.first[site] = {sequence, plan_id, i, stats[i].first_nonfinite, stats[i].first_kind};
    }
  }
  for (int site = 0; site < kCountedSites; ++site) totals.reads[site] += seen[site];
}

}  // namespace gradvane::kernels
