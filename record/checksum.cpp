#include "record/checksum.hpp"

#include <array>
#include <cstring>

namespace gradvane::record {
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

}  // namespace gradvane::record
