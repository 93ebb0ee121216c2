#pragma once
// Where a read's results wait for the worker: a ring of slots in (mapped, pinned) memory, each a
// seqlock. The producer never looks at a reader's cursor: a full ring overwrites its oldest slot, and
// the gap in sequence numbers is what was dropped.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels {

enum class Site : std::uint8_t { loss, grad, weight, scalar };
inline constexpr int kCountedSites = 3;  ///< loss, grad, weight; a `scalar` is only carried
enum class NonfiniteKind : std::uint8_t { nan, pos_inf, neg_inf };
inline constexpr int kNonfiniteKinds = 3;

/// The first non-finite element a site ever showed; sticky.
struct FirstBad {
  std::uint64_t sequence = 0;  ///< of the read that saw it; 0: none yet
  std::uint64_t plan_id = 0;
  std::int64_t tensor = -1;   ///< index in that plan
  std::int64_t element = -1;  ///< linear index in memory order
};

/// Running totals since the ring's stream of reads began: carried by every slot, so that a dropped
/// slot loses detail but never the fact.
struct RunningTotals {
  std::array<std::array<std::int64_t, kNonfiniteKinds>, kCountedSites> elements{};
  std::array<std::int64_t, kCountedSites> reads{};  ///< reads with at least one non-finite element
  std::array<FirstBad, kCountedSites> first{};
};

struct SlotHeader {
  std::uint64_t sequence = 0;  ///< counts reads from 1
  std::uint64_t plan_id = 0;
  std::int64_t tensors = 0;
  RunningTotals totals;
};

}  // namespace gradvane::kernels
