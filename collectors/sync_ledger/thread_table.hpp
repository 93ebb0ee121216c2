#pragma once
// What one thread has waited for. The thread itself writes, in callbacks, without locks or allocation; one
// reader at a time looks on from another thread.
#include <array>
#include <atomic>
#include <cstdint>

#include "collectors/sync_ledger/cuda_calls.hpp"
#include "collectors/sync_ledger/place_store.hpp"
#include "collectors/sync_ledger/python_stack.hpp"
#include "collectors/sync_ledger/sync_mark.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::collectors {

/// What a cell counts.
struct SyncKey {
  PlaceId place = kOtherPlace;
  record::SyncKind kind = record::SyncKind::device;
  record::SyncOrigin origin = record::SyncOrigin::training;
  std::uint8_t phase = kNoPhase;
  friend bool operator==(const SyncKey&, const SyncKey&) = default;
};

struct SyncCell {
  SyncKey key;
  std::int64_t calls;
  std::int64_t nanoseconds;
  std::int64_t longest;
};

/// Nobody takes steps yet, so nobody asks what was in them.
inline constexpr std::uint64_t kFirstEpoch = 1;

/// One sync, for whoever wants to know which step it was in.
struct SyncEvent {
  std::uint64_t epoch;
  std::uint32_t cell;
  std::int64_t nanoseconds;
};

/// A table that a PlaceFinder fills: from code objects and call sites to places.
struct CodeEntry {
  const void* code;
  PythonStack::Identity identity;
  std::uint32_t what;  ///< of PlaceFinder; 0: empty
};
struct SiteEntry {
  const void* code;  ///< or a scope's name, or a return address
  std::int32_t offset;
  std::uint32_t serial;  ///< of the code object at that address
  PlaceId place;
};
struct NativeEntry {
  const void* call;
  std::uintptr_t stack;
  std::array<std::uintptr_t, 2> slots;
  std::array<std::uintptr_t, 2> values;
};

/// Plain data, all zero at the start: it lies in a Mapped array.
struct alignas(4096) ThreadTable {
  static constexpr std::uint32_t kCells = 1024;
  static constexpr std::uint32_t kEvents = 4096;
  static constexpr std::uint32_t kCodes = 1024;
  static constexpr std::uint32_t kSites = 1024;
  static constexpr std::uint32_t kNatives = 64;
  /// The first cells are those of kOtherPlace, one for each origin and kind.
  static constexpr std::uint32_t kOtherCells = record::kSyncOrigins * record::kSyncKinds;

  // Shared with the reader, by atomic access.
  std::int32_t thread_id;
  std::uint32_t cells_used;  ///< beside the first ones
  std::uint64_t events_written;
  std::uint64_t events_read;
  std::array<std::int64_t, record::kSyncDrops> dropped;
  std::array<std::int64_t, record::kSyncOrigins> polls;
  std::array<std::int64_t, record::kSyncOrigins> poll_nanoseconds;
  std::array<SyncCell, kOtherCells + kCells> cells;
  std::array<SyncEvent, kEvents> events;

  // The thread's own.
  std::array<std::uint16_t, 2 * kCells> cell_index;  ///< by hash; cell - kOtherCells + 1
  std::array<CodeEntry, kCodes> codes;
  std::array<SiteEntry, kSites> sites;
  std::array<NativeEntry, kNatives> natives;
  std::uint32_t codes_used;
  std::uint32_t serials;  ///< given to code objects
  std::uint32_t sites_used;
  std::uint32_t unwound;
  std::uint32_t met_natively;

  /// The outermost call that is being made.
  struct Call {
    const CudaCall* what;  ///< null: none
    std::uint64_t token;
    std::uint64_t generation;  ///< of the subscription that saw it begin
    std::uint64_t epoch;
    std::int64_t began;
    std::uint8_t phase;
    record::SyncOrigin origin;
    bool waited_inside;
    std::uint32_t inside;  ///< calls within it
  } call;
  /// An asynchronous copy that may turn out to be one half of a read.
  struct Copy {
    bool is_there;
    bool blocked;
    CopyDirection direction;
    std::uint8_t phase;
    record::SyncOrigin origin;
    PlaceId place;
    const void* stream;
    std::uint64_t epoch;
    std::int64_t nanoseconds;
  } copy;
  std::uint64_t calls_seen;

  /// Counts one sync.
  void count(const SyncKey& key, std::uint64_t epoch, std::int64_t nanoseconds) noexcept;
  void drop(record::SyncDrop why) noexcept;
  void poll(record::SyncOrigin origin, std::int64_t nanoseconds) noexcept;

 private:
  std::uint32_t cell_of(const SyncKey& key) noexcept;
};
static_assert(std::is_trivially_copyable_v<ThreadTable>);

/// Adds to a number that only this thread writes.
template <typename T>
void add_own(T& number, T amount) noexcept {
  const std::atomic_ref<T> shared(number);
  shared.store(shared.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace gradvane::collectors
