#include "collectors/sync_ledger/thread_table.hpp"

namespace gradvane::collectors {
namespace {

std::uint32_t hash_of(const SyncKey& key) noexcept {
  std::uint64_t bits = key.place;
  bits = bits << 8 | static_cast<std::uint64_t>(key.kind) << 4 |
         static_cast<std::uint64_t>(key.origin);
  bits =
      bits << 6 | static_cast<std::uint64_t>(key.phase) << 2 | static_cast<std::uint64_t>(key.part);
  bits *= 0x9E3779B97F4A7C15U;
  return static_cast<std::uint32_t>(bits >> 40);
}

}  // namespace

std::uint32_t ThreadTable::cell_of(const SyncKey& key) noexcept {
  const auto other = (static_cast<std::uint32_t>(key.part) * record::kSyncOrigins +
                      static_cast<std::uint32_t>(key.origin)) *
                         record::kSyncKinds +
                     static_cast<std::uint32_t>(key.kind);
  if (key.place == kOtherPlace) return other;
  for (std::uint32_t at = hash_of(key);; ++at) {
    std::uint16_t& index = cell_index[at % cell_index.size()];
    if (index == 0) {
      if (cells_used == kCells) {
        drop(record::SyncDrop::sites);
        return other;
      }
      const std::uint32_t cell = kOtherCells + cells_used;
      cells[cell].key = key;
      index = static_cast<std::uint16_t>(cells_used + 1);
      std::atomic_ref(cells_used).store(cells_used + 1, std::memory_order_release);
      return cell;
    }
    const std::uint32_t cell = kOtherCells + index - 1U;
    if (cells[cell].key == key) return cell;
  }
}

void ThreadTable::count(const SyncKey& key, std::uint64_t epoch,
                        std::int64_t nanoseconds) noexcept {
  const std::uint32_t cell = cell_of(key);
  SyncCell& counts = cells[cell];
  add_own(counts.calls, std::int64_t{1});
  add_own(counts.nanoseconds, nanoseconds);
  if (nanoseconds > counts.longest)
    std::atomic_ref(counts.longest).store(nanoseconds, std::memory_order_relaxed);

  if (key.part != record::SyncPart::in_steps) return;
  const std::atomic_ref read(events_read);
  if (events_written - read.load(std::memory_order_acquire) >= kEvents)
    return drop(record::SyncDrop::events);
  events[events_written % kEvents] = {epoch, cell, nanoseconds};
  std::atomic_ref(events_written).store(events_written + 1, std::memory_order_release);
}

void ThreadTable::drop(record::SyncDrop why) noexcept {
  add_own(dropped[static_cast<std::size_t>(why)], std::int64_t{1});
}

void ThreadTable::poll(record::SyncOrigin origin, std::int64_t nanoseconds) noexcept {
  add_own(polls[index_of(origin)], std::int64_t{1});
  add_own(poll_nanoseconds[index_of(origin)], nanoseconds);
}

/// The reader may look on: whoever sees one of the new values also sees that `pending_since` was 0 before it.
void ThreadTable::keep_copy(const Copy& kept, std::int64_t ended) noexcept {
  copy = kept;
  if (!kept.blocked) return;
  const SyncKey key{kept.place, record::SyncKind::async_copy_blocked, kept.origin, kept.phase,
                    kept.part};
  std::atomic_ref(pending_key).store(std::bit_cast<std::uint64_t>(key), std::memory_order_release);
  std::atomic_ref(pending_epoch).store(kept.epoch, std::memory_order_release);
  std::atomic_ref(pending_nanoseconds).store(kept.nanoseconds, std::memory_order_release);
  std::atomic_ref(pending_since).store(ended, std::memory_order_release);
}

void ThreadTable::forget_copy() noexcept {
  copy.is_there = false;
  if (copy.blocked) std::atomic_ref(pending_since).store(0, std::memory_order_relaxed);
}

void ThreadTable::settle_copy() noexcept {
  if (!copy.is_there) return;
  if (copy.blocked)
    count({copy.place, record::SyncKind::async_copy_blocked, copy.origin, copy.phase, copy.part},
          copy.epoch, copy.nanoseconds);
  forget_copy();
}

std::optional<PendingCopy> ThreadTable::pending_copy() noexcept {
  constexpr auto kAcquire = std::memory_order_acquire;
  PendingCopy pending;
  const std::atomic_ref since(pending_since);
  pending.since = since.load(kAcquire);
  if (pending.since == 0) return std::nullopt;
  pending.key = std::bit_cast<SyncKey>(std::atomic_ref(pending_key).load(kAcquire));
  pending.epoch = std::atomic_ref(pending_epoch).load(kAcquire);
  pending.nanoseconds = std::atomic_ref(pending_nanoseconds).load(kAcquire);
  // Another one by now: it is too young to be of interest.
  if (since.load(std::memory_order_relaxed) != pending.since) return std::nullopt;
  return pending;
}

}  // namespace gradvane::collectors
