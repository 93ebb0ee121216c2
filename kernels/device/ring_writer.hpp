#pragma once
// The device's side of a ResultRing: writes the bytes that SlotRing::read expects, see slot_ring.hpp.
//
// A device has no one thread that writes a slot: blocks write a tensor's statistics as they finish it.
// So the slot's `begin` is stored by the read before it, when that one is published, and a slot counts
// as being overwritten from then on: of a ring's n slots, n - 1 can be read.
#include <cstddef>
#include <cstdint>

#include "kernels/device/field_merge.hpp"
#include "kernels/device/pass_layout.hpp"
#include "kernels/result_ring.hpp"
#include "kernels/slot_ring.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels::device {

/// By the threads of one warp, each a word.
template <class Lane>
GRADVANE_HOST_DEVICE inline void copy_stats(Lane& lane, const TensorStats& from,
                                            TensorStats* to) noexcept {
  const int word = lane.thread() % kWarp;
  if (word >= kStatsWords) return;
  reinterpret_cast<std::uint64_t*>(to)[word] = reinterpret_cast<const std::uint64_t*>(&from)[word];
}

template <class Lane>
class RingWriter {
 public:
  GRADVANE_HOST_DEVICE RingWriter(Lane& lane, const RingTarget& ring,
                                  std::uint64_t sequence) noexcept
      : lane_(lane), ring_(ring), sequence_(sequence) {}

  /// By the threads of one warp. What does not fit into the slot is left out.
  GRADVANE_HOST_DEVICE void write_stats(std::int64_t tensor, const TensorStats& stats) noexcept {
    constexpr int kWords = kRecordBytes / sizeof(std::uint64_t);
    const int word = lane_.thread() % kWarp;
    if (tensor >= ring_.max_tensors || word >= kWords) return;
    std::uint64_t* to =
        payload() + record_offset(static_cast<std::size_t>(tensor)) / sizeof(std::uint64_t);
    // The whole record, so that no line is written in part.
    const auto* words = reinterpret_cast<const std::uint64_t*>(&stats);
    lane_.store_host(to + word, word < kStatsWords ? words[word] : 0);
  }

  /// By the threads of one warp, when all statistics are written and known to be. `latest` may be seen
  /// before `end`: a reader that looks for this read then finds it not there yet.
  GRADVANE_HOST_DEVICE void publish(const SlotHeader& header) noexcept {
    const auto* words = reinterpret_cast<const std::uint64_t*>(&header);
    constexpr int kWords = sizeof(SlotHeader) / sizeof(std::uint64_t);
    static_assert(kWords <= kWarp);
    const int word = lane_.thread() % kWarp;
    if (word < kWords) lane_.store_host(payload() + word, words[word]);
    lane_.sync_warp();
    if (word != 0) return;
    lane_.store_host(lock_of(sequence_), sequence_);          // our begin: the first read had none
    lane_.store_host(lock_of(sequence_ + 1), sequence_ + 1);  // that of the slot to come
    lane_.fence_host();
    lane_.store_host(lock_of(sequence_) + 1, sequence_);  // our end
    lane_.store_host(reinterpret_cast<std::uint64_t*>(ring_.memory + offsetof(RingHeader, latest)),
                     sequence_);
  }

 private:
  static_assert(offsetof(SlotLock, begin) == 0 && offsetof(SlotLock, end) == 8);

  [[nodiscard]] GRADVANE_HOST_DEVICE std::uint64_t* lock_of(std::uint64_t sequence) const noexcept {
    return reinterpret_cast<std::uint64_t*>(ring_.memory + sizeof(RingHeader) +
                                            sequence % ring_.slots * ring_.stride_bytes);
  }
  [[nodiscard]] GRADVANE_HOST_DEVICE std::uint64_t* payload() const noexcept {
    return lock_of(sequence_) + sizeof(SlotLock) / sizeof(std::uint64_t);
  }

  Lane& lane_;
  const RingTarget& ring_;
  std::uint64_t sequence_;
};

}  // namespace gradvane::kernels::device
