#include "agent/snapshots/digest.hpp"

#include <array>
#include <cstring>

namespace gradvane::agent {
namespace {

constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15;  // odd, so that no bit is lost in a product
constexpr std::size_t kLanes = 4;                     // that do not wait for each other

std::uint64_t word_at(const std::byte* at, std::size_t bytes) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

std::uint64_t mixed(std::uint64_t state, std::uint64_t word) noexcept {
  state = (state ^ word) * kPrime;
  return state ^ (state >> 29);
}

/// Without a branch, so that the compiler can take many numbers at a time.
template <typename Word>
bool is_finite(std::span<const std::byte> bytes, Word exponent) noexcept {
  constexpr std::size_t kBlock = 4096;
  const std::size_t count = bytes.size() / sizeof(Word);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = begin + kBlock < count ? begin + kBlock : count;
    Word bad = 0;
    for (std::size_t i = begin; i < end; ++i) {
      Word word;
      std::memcpy(&word, bytes.data() + i * sizeof(Word), sizeof(Word));
      bad |= static_cast<Word>((word & exponent) == exponent);
    }
    if (bad != 0) return false;
  }
  return true;
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  std::array<std::uint64_t, kLanes> lanes{seed, seed + 1, seed + 2, seed + 3};
  constexpr std::size_t kStride = kLanes * sizeof(std::uint64_t);
  std::size_t at = 0;
  for (; at + kStride <= bytes.size(); at += kStride)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] =
          mixed(lanes[lane], word_at(bytes.data() + at + lane * sizeof(std::uint64_t), 8));
  for (; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::size_t left = bytes.size() - at;
    lanes[0] = mixed(lanes[0], word_at(bytes.data() + at, left < 8 ? left : 8));
  }
  std::uint64_t sum = mixed(0, bytes.size());
  for (const std::uint64_t lane : lanes) sum = mixed(sum, lane);
  return sum;
}

bool all_finite(std::span<const std::byte> bytes, const FloatLayout& layout) noexcept {
  switch (layout.bytes) {
    case 2:
      return is_finite(bytes, static_cast<std::uint16_t>(layout.exponent));
    case 4:
      return is_finite(bytes, static_cast<std::uint32_t>(layout.exponent));
    case 8:
      return is_finite(bytes, layout.exponent);
    default:
      return true;
  }
}

}  // namespace gradvane::agent
