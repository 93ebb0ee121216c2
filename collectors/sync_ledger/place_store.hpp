#pragma once
// The places in the code that were seen to wait, written once by the thread that met them first and read
// by whoever reports. Fixed room, taken from the system before the first callback: nothing here allocates.
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "collectors/sync_ledger/mapped.hpp"

namespace gradvane::collectors {

using PlaceId = std::uint32_t;
inline constexpr PlaceId kOtherPlace = 0;     ///< what found no room
inline constexpr PlaceId kGradvanePlace = 1;  ///< our own calls
inline constexpr PlaceId kFirstPlace = 2;

struct Place {
  enum class From : std::uint8_t { python, scope, native, thread };
  struct Line {
    std::array<char, 192> file;  ///< the end of a longer one
    std::array<char, 96> function;
    std::int32_t number;
  };
  static constexpr int kLines = 4;

  From from;
  std::uint8_t lines;             ///< python: itself and its callers, innermost first
  std::array<Line, kLines> line;  ///< scope: the function of the first is its name
  std::array<std::uintptr_t, kLines> addresses;  ///< native: return addresses, innermost first
  std::array<char, 16> thread;                   ///< name of the thread that met it first
  std::uint8_t is_ready;                         ///< the last to be written
};

class PlaceStore {
 public:
  static constexpr PlaceId kPlaces = 4096;

  /// False where there is no memory.
  bool open() noexcept { return places_.map(kPlaces); }

  /// A new place; kOtherPlace where there is no room.
  template <typename Fill>
  PlaceId add(Fill fill) noexcept {
    if (used_.load(std::memory_order_relaxed) >= kPlaces) return kOtherPlace;
    const PlaceId id = used_.fetch_add(1, std::memory_order_relaxed);
    if (id >= kPlaces) return kOtherPlace;
    Place& place = places_[id];
    fill(place);
    std::atomic_ref(place.is_ready).store(1, std::memory_order_release);
    return id;
  }

  /// Null for an id without a place, and while that is being written.
  [[nodiscard]] const Place* find(PlaceId id) const noexcept {
    if (id < kFirstPlace || id >= kPlaces) return nullptr;
    Place& place = places_[id];
    return std::atomic_ref(place.is_ready).load(std::memory_order_acquire) != 0 ? &place : nullptr;
  }

 private:
  Mapped<Place> places_;
  std::atomic<PlaceId> used_{kFirstPlace};
};

}  // namespace gradvane::collectors
