#pragma once
// What one thread has waited for. The thread itself writes, in callbacks, without locks or allocation; one
// reader at a time looks on from another thread.
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "collectors/sync_ledger/cupti/cuda_calls.hpp"
#include "collectors/sync_ledger/places/place_store.hpp"
#include "collectors/sync_ledger/places/python_stack.hpp"
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
  record::SyncPart part = record::SyncPart::in_steps;
  friend bool operator==(const SyncKey&, const SyncKey&) = default;
};

struct SyncCell {
  SyncKey key;
  std::int64_t calls;
  std::int64_t nanoseconds;
  std::int64_t longest;
};

/// What comes before the end of the first step is no step's: nobody saw that begin.
inline constexpr std::uint64_t kFirstEpoch = 1;

/// One sync, for whoever wants to know which step it was in.
struct SyncEvent {
  std::uint64_t epoch;
  std::uint32_t cell;
  std::int64_t nanoseconds;
};

/// A copy that blocked, and whose thread has made no CUDA call since: whether a wait belongs to it is not known.
struct PendingCopy {
  SyncKey key;
  std::uint64_t epoch = 0;
  std::int64_t nanoseconds = 0;
  std::int64_t since = 0;  ///< when it ended, monotonic nanoseconds
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
  /// The first cells are those of kOtherPlace, one for each part, origin and kind.
  static constexpr std::uint32_t kOtherCells =
      record::kSyncParts * record::kSyncOrigins * record::kSyncKinds;

  // Shared with the reader, by atomic access.
  std::int32_t thread_id;
  std::uint32_t cells_used;  ///< beside the first ones
  std::uint64_t events_written;
  std::uint64_t events_read;
  std::array<std::int64_t, record::kSyncDrops> dropped;
  std::array<std::int64_t, record::kSyncOrigins> polls;
  std::array<std::int64_t, record::kSyncOrigins> poll_nanoseconds;
  std::uint8_t is_of_training;  ///< the thread ends steps, or runs backward passes
  std::array<SyncCell, kOtherCells + kCells> cells;
  std::array<SyncEvent, kEvents> events;
  /// What `copy` is to the reader. Written while `pending_since` is 0, and read twice.
  std::int64_t pending_since;
  std::uint64_t pending_key;
  std::uint64_t pending_epoch;
  std::int64_t pending_nanoseconds;

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
    record::SyncPart part;
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
    record::SyncPart part;
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

  /// Keeps an asynchronous copy until the thread's next call. `ended`: when, if it blocked.
  void keep_copy(const Copy& kept, std::int64_t ended) noexcept;
  void forget_copy() noexcept;
  /// A copy that is kept counts for itself: no wait that follows belongs to it. On the table's thread, or
  /// when that is gone.
  void settle_copy() noexcept;
  /// The copy that is kept, if it blocked. For the reader.
  [[nodiscard]] std::optional<PendingCopy> pending_copy() noexcept;

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
