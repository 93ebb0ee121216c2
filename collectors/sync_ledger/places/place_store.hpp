#pragma once
// The places in the code that were seen to wait, each once, written by the thread that met it first and read
// by whoever reports. Fixed room, taken from the system before the first callback: nothing here allocates.
#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

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

  /// Whichever thread met it; where there is nothing else, the thread is the place.
  [[nodiscard]] bool is_same(const Place& other) const noexcept;
  [[nodiscard]] std::uint64_t hash() const noexcept;
};
static_assert(std::is_trivially_copyable_v<Place>);

class PlaceStore {
 public:
  static constexpr PlaceId kPlaces = 4096;

  /// False where there is no memory.
  bool open() noexcept { return places_.map(kPlaces) && index_.map(kIndex); }

  /// Of a place that is known, or a new one; kOtherPlace where there is no room. In a callback, on any
  /// thread. Threads that meet a place at the same moment get the same one.
  PlaceId add(const Place& place) noexcept;

  /// Null for an id without a place, and while that is being written.
  [[nodiscard]] const Place* find(PlaceId id) const noexcept {
    if (id < kFirstPlace || id >= kPlaces) return nullptr;
    Place& place = places_[id];
    return std::atomic_ref(place.is_ready).load(std::memory_order_acquire) != 0 ? &place : nullptr;
  }

 private:
  static constexpr std::uint32_t kIndex = 2 * kPlaces;

  Mapped<Place> places_;
  Mapped<PlaceId> index_;  ///< by hash; 0: empty
  std::atomic<PlaceId> used_{kFirstPlace};
};

}  // namespace gradvane::collectors
