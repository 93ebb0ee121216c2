#pragma once
// Where a read's results wait for the worker: a SlotRing whose slots are a SlotHeader and a record per
// tensor, its TensorStats. The producer is a thread here, or a device that writes the same bytes; there
// is one reader for both.
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/host_device.hpp"
#include "kernels/running_totals.hpp"
#include "kernels/slot_ring.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::kernels {

/// The first bytes of a slot's payload.
struct SlotHeader {
  std::uint64_t sequence = 0;  ///< counts reads from 1
  std::uint64_t plan_id = 0;
  std::int64_t tensors = 0;
  std::uint64_t token = 0;  ///< the producer's own number of what made it read; a replay repeats it
  RunningTotals totals;     ///< this read included
};
static_assert(std::is_trivially_copyable_v<SlotHeader> && std::is_standard_layout_v<SlotHeader>);
static_assert(offsetof(SlotHeader, plan_id) == 8 && offsetof(SlotHeader, tensors) == 16);
static_assert(offsetof(SlotHeader, token) == 24 && offsetof(SlotHeader, totals) == 32);
static_assert(sizeof(SlotHeader) == 248);

/// A record begins a line of memory and has it to itself: what a device stores into one may go over the bus as one piece.
inline constexpr std::size_t kRecordBytes = 128;
/// Of a tensor's record in the payload.
[[nodiscard]] GRADVANE_HOST_DEVICE constexpr std::size_t record_offset(
    std::size_t tensor) noexcept {
  constexpr std::size_t kBefore = sizeof(RingHeader) + sizeof(SlotLock) + sizeof(SlotHeader);
  constexpr std::size_t kGap = (kRecordBytes - kBefore % kRecordBytes) % kRecordBytes;
  return sizeof(SlotHeader) + kGap + tensor * kRecordBytes;
}
static_assert(sizeof(TensorStats) <= kRecordBytes && SlotRing::kAlignment % kRecordBytes == 0);

class ResultRing {
 public:
  /// Owns host memory. Throws std::invalid_argument unless slots > 0 and max_tensors >= 0.
  ResultRing(int slots, std::int64_t max_tensors);
  /// Over memory of the caller (pinned and mapped, say), which outlives the ring; see SlotRing.
  ResultRing(int slots, std::int64_t max_tensors, std::span<std::byte> memory);

  [[nodiscard]] static std::size_t bytes_needed(int slots, std::int64_t max_tensors) noexcept;
  /// Slots for a reader who may be late. `asked` 0: what fits in 1 MiB, from 64 to 1,024, since short
  /// reads follow each other fast. Whatever was asked: 2 at least, and no more than fit in 64 MiB.
  [[nodiscard]] static int slots_for(int asked, std::int64_t max_tensors) noexcept;

  [[nodiscard]] std::int64_t max_tensors() const noexcept { return max_tensors_; }
  [[nodiscard]] std::uint64_t latest() const noexcept { return ring_.latest(); }
  [[nodiscard]] SlotRing& slots() noexcept { return ring_; }
  [[nodiscard]] const SlotRing& slots() const noexcept { return ring_; }

 private:
  std::int64_t max_tensors_;
  SlotRing ring_;
};

/// What a producer takes with it when it moves to a bigger ring.
struct ProducerState {
  std::uint64_t sequence = 0;  ///< the last one published
  RunningTotals totals;
};

/// The host's producer. One thread at a time; never waits, allocates or throws.
class RingProducer {
 public:
  /// The ring outlives the producer. Publishing goes on behind `state`.
  explicit RingProducer(ResultRing& ring, ProducerState state = {}) noexcept;

  /// Publishes one read: adds it to the running totals and writes the next slot.
  /// @param sites, stats  one per tensor of the plan
  /// @param token        what the slot carries; 0: the read's sequence number
  /// @return the read's sequence number
  /// A read of more tensors than the ring holds goes into the totals whole; the slot carries as many
  /// as fit, and says how many.
  std::uint64_t publish(std::uint64_t plan_id, std::span<const Site> sites,
                        std::span<const TensorStats> stats, std::uint64_t token = 0) noexcept;

  [[nodiscard]] ProducerState state() const noexcept { return state_; }

 private:
  ResultRing* ring_;
  ProducerState state_;
};

enum class ReadStatus : std::uint8_t { ok, empty, overwritten };
struct ReadResult {
  ReadStatus status = ReadStatus::empty;
  /// Reads that were overwritten before they could be read, newly found by this call; they come
  /// before the one returned.
  std::uint64_t lost = 0;
};

/// One reader; any number of them may share a ring, each on its own thread.
class RingReader {
 public:
  /// The ring outlives the reader. Begins behind `after`: with ProducerState::sequence in a ring
  /// that continues another.
  explicit RingReader(const ResultRing& ring, std::uint64_t after = 0) noexcept;

  /// The next read: ok, or empty if there is none yet. Skips what was overwritten and counts it in
  /// `lost`, also with empty. `stats` is resized; it allocates only while it grows.
  ReadResult read_next(SlotHeader& header, std::vector<TensorStats>& stats);

  /// A given read, without moving on: ok, empty (not there yet) or overwritten. Only with ok do
  /// `header` and `stats` mean anything.
  [[nodiscard]] ReadStatus read(std::uint64_t sequence, SlotHeader& header,
                                std::vector<TensorStats>& stats) const;

  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }  ///< sequence to come

 private:
  const ResultRing* ring_;
  std::uint64_t next_;
};

}  // namespace gradvane::kernels
