#include "collectors/sync_ledger/places/place_store.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace gradvane::collectors {
namespace {

template <std::size_t N>
std::string_view text(const std::array<char, N>& chars) noexcept {
  return {chars.data(), ::strnlen(chars.data(), N)};
}

class Hash {
 public:
  void add(std::uint64_t value) noexcept { sum_ = (sum_ ^ value) * 0x100000001B3U; }
  void add(std::string_view bytes) noexcept {
    for (const char byte : bytes) add(static_cast<unsigned char>(byte));
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return sum_ ^ sum_ >> 32; }

 private:
  std::uint64_t sum_ = 0xCBF29CE484222325U;  // FNV-1a
};

bool is_same_line(const Place::Line& one, const Place::Line& other) noexcept {
  return one.number == other.number && text(one.file) == text(other.file) &&
         text(one.function) == text(other.function);
}

}  // namespace

/// Its callers are those of the first time, and no part of it.
bool Place::is_same(const Place& other) const noexcept {
  if (from != other.from) return false;
  switch (from) {
    case From::python:
    case From::scope:
      return is_same_line(line[0], other.line[0]);
    case From::native:
      return addresses[0] == other.addresses[0];
    case From::thread:
      return text(thread) == text(other.thread);
  }
  return false;
}

std::uint64_t Place::hash() const noexcept {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(from));
  if (from == From::native) {
    hash.add(addresses[0]);
  } else if (from == From::thread) {
    hash.add(text(thread));
  } else {
    hash.add(text(line[0].file));
    hash.add(text(line[0].function));
    hash.add(static_cast<std::uint64_t>(line[0].number));
  }
  return hash.value();
}

PlaceId PlaceStore::add(const Place& place) noexcept {
  PlaceId made = kOtherPlace;
  const auto first = static_cast<std::uint32_t>(place.hash());
  for (std::uint32_t i = 0; i < kIndex; ++i) {
    const std::atomic_ref slot(index_[(first + i) % kIndex]);
    PlaceId known = slot.load(std::memory_order_acquire);
    if (known == kOtherPlace) {
      if (made == kOtherPlace) {
        if (used_.load(std::memory_order_relaxed) >= kPlaces) return kOtherPlace;
        made = used_.fetch_add(1, std::memory_order_relaxed);
        if (made >= kPlaces) return kOtherPlace;
        Place& kept = places_[made];
        kept = place;
        std::atomic_ref(kept.is_ready).store(1, std::memory_order_release);
      }
      if (slot.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
    }
    if (places_[known].is_same(place)) return known;
  }
  return made;
}

}  // namespace gradvane::collectors
