#pragma once
// Which elements of a tensor stand for all of them when not all are kept: the same on every machine.
#include <cstdint>

#include "kernels/host_device.hpp"

namespace gradvane::kernels {

/// Element i of `count` in memory order, count <= numel: one of each of `count` equal parts, at a place
/// in it that looks random and is always the same. At even distance, a matrix whose rows are a multiple
/// of it long would show the same few columns again and again: of one input, and perhaps a dead one.
/// Precondition: count * numel fits into 63 bits.
GRADVANE_HOST_DEVICE constexpr std::int64_t sample_position(std::int64_t i, std::int64_t count,
                                                            std::int64_t numel) noexcept {
  const std::int64_t begin = i * numel / count;
  const std::int64_t end = (i + 1) * numel / count;
  auto mixed = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15;  // splitmix64
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return begin + static_cast<std::int64_t>(mixed % static_cast<std::uint64_t>(end - begin));
}

}  // namespace gradvane::kernels
