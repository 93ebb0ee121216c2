#include "kernels/slot_ring.hpp"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace gradvane::kernels {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kBegin = offsetof(SlotLock, begin) / kWord;
constexpr std::size_t kEnd = offsetof(SlotLock, end) / kWord;
constexpr std::size_t kPayload = sizeof(SlotLock) / kWord;
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t stride_of(std::size_t payload_bytes) {
  return round_up(sizeof(SlotLock) + round_up(payload_bytes, kWord), SlotRing::kAlignment);
}

std::byte* allocate(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, std::align_val_t{SlotRing::kAlignment}));
}

std::size_t checked_bytes(int slots, std::size_t payload_bytes) {
  if (slots <= 0 || payload_bytes == 0) {
    throw std::invalid_argument("SlotRing: " + std::to_string(slots) + " slots of " +
                                std::to_string(payload_bytes) + " bytes; both must be positive");
  }
  return SlotRing::bytes_needed(slots, payload_bytes);
}

std::atomic_ref<std::uint64_t> latest_of(std::span<std::byte> memory) {
  return std::atomic_ref(
      *reinterpret_cast<std::uint64_t*>(memory.data() + offsetof(RingHeader, latest)));
}

/// With a constant size the memcpy is one instruction; with a size known only at run time it is a call.
inline void store_word(std::uint64_t* to, const std::byte* from, std::size_t bytes) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  std::atomic_ref(*to).store(word, std::memory_order_release);
}

inline void load_word(std::byte* to, const std::uint64_t* from, std::size_t bytes) noexcept {
  const std::uint64_t word =
      std::atomic_ref(*const_cast<std::uint64_t*>(from)).load(std::memory_order_acquire);
  std::memcpy(to, &word, bytes);
}

}  // namespace

void SlotRing::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete(memory, std::align_val_t{kAlignment});
}

SlotRing::SlotRing(int slots, std::size_t payload_bytes)
    : SlotRing(
          slots, payload_bytes,
          {allocate(checked_bytes(slots, payload_bytes)), bytes_needed(slots, payload_bytes)}) {
  owned_.reset(memory_.data());
}

SlotRing::SlotRing(int slots, std::size_t payload_bytes, std::span<std::byte> memory) {
  const std::size_t needed = checked_bytes(slots, payload_bytes);
  if (memory.size() < needed || reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment != 0) {
    throw std::invalid_argument("SlotRing: needs " + std::to_string(needed) + " bytes aligned to " +
                                std::to_string(kAlignment) + ", was given " +
                                std::to_string(memory.size()));
  }
  memory_ = memory.first(needed);
  slots_ = static_cast<std::uint64_t>(slots);
  payload_bytes_ = round_up(payload_bytes, kWord);
  stride_bytes_ = stride_of(payload_bytes);
  std::memset(memory_.data(), 0, needed);  // sequence 0 in every slot: nothing there
  RingHeader header;
  header.slots = slots_;
  header.payload_bytes = payload_bytes_;
  header.stride_bytes = stride_bytes_;
  std::memcpy(memory_.data(), &header, sizeof(header));
}

std::size_t SlotRing::bytes_needed(int slots, std::size_t payload_bytes) noexcept {
  return sizeof(RingHeader) + static_cast<std::size_t>(slots) * stride_of(payload_bytes);
}

std::uint64_t SlotRing::latest() const noexcept {
  return latest_of(memory_).load(std::memory_order_acquire);
}

std::uint64_t SlotRing::oldest() const noexcept {
  const std::uint64_t last = latest();
  return last > slots_ ? last - slots_ + 1 : 1;
}

std::uint64_t* SlotRing::words_of(std::uint64_t sequence) const noexcept {
  return reinterpret_cast<std::uint64_t*>(memory_.data() + sizeof(RingHeader) +
                                          sequence % slots_ * stride_bytes_);
}

bool SlotRing::write_spans(std::uint64_t sequence,
                           std::span<const std::span<const std::byte>> parts) noexcept {
  std::size_t total = 0;
  for (const auto& part : parts) total += round_up(part.size(), kWord);
  if (sequence == 0 || total > payload_bytes_) return false;

  begin(sequence);
  std::size_t offset = 0;
  for (const auto& part : parts) {
    put(sequence, offset, part);
    offset += round_up(part.size(), kWord);
  }
  end(sequence);
  return true;
}

void SlotRing::begin(std::uint64_t sequence) noexcept {
  std::atomic_ref(words_of(sequence)[kBegin]).store(sequence, std::memory_order_relaxed);
}

void SlotRing::put(std::uint64_t sequence, std::size_t offset,
                   std::span<const std::byte> bytes) noexcept {
  if (offset % kWord != 0 || offset > payload_bytes_ || bytes.size() > payload_bytes_ - offset)
    return;
  std::uint64_t* to = words_of(sequence) + kPayload + offset / kWord;
  const std::size_t whole = bytes.size() / kWord * kWord;
  for (std::size_t at = 0; at < whole; at += kWord) store_word(to++, bytes.data() + at, kWord);
  if (whole < bytes.size()) store_word(to, bytes.data() + whole, bytes.size() - whole);
}

void SlotRing::end(std::uint64_t sequence) noexcept {
  std::atomic_ref(words_of(sequence)[kEnd]).store(sequence, std::memory_order_release);
  latest_of(memory_).store(sequence, std::memory_order_release);
}

SlotStatus SlotRing::read(std::uint64_t sequence, std::span<std::byte> out,
                          std::size_t offset) const noexcept {
  if (sequence == 0 || offset % kWord != 0 || offset > payload_bytes_ ||
      out.size() > payload_bytes_ - offset) {
    return SlotStatus::not_yet;
  }
  std::uint64_t* words = words_of(sequence);
  const std::uint64_t end = std::atomic_ref(words[kEnd]).load(std::memory_order_acquire);
  if (end != sequence) {
    if (end > sequence) return SlotStatus::overwritten;
    // Being written, by this sequence or, if `end` is stale, by a later one.
    const auto begin = std::atomic_ref(words[kBegin]).load(std::memory_order_relaxed);
    return begin > sequence ? SlotStatus::overwritten : SlotStatus::not_yet;
  }
  const std::uint64_t* from = words + kPayload + offset / kWord;
  const std::size_t whole = out.size() / kWord * kWord;
  for (std::size_t at = 0; at < whole; at += kWord) load_word(out.data() + at, from++, kWord);
  if (whole < out.size()) load_word(out.data() + whole, from, out.size() - whole);
  const auto begin = std::atomic_ref(words[kBegin]).load(std::memory_order_relaxed);
  return begin == sequence ? SlotStatus::ok : SlotStatus::overwritten;
}

}  // namespace gradvane::kernels
