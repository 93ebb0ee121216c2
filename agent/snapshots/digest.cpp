#include "agent/snapshots/digest.hpp"

#include <cstring>

namespace gradvane::agent {
namespace {

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

bool all_finite(std::span<const std::byte> bytes, const FloatLayout& layout) noexcept {
  switch (layout.bytes) {
    case 1:
      return is_finite(bytes, static_cast<std::uint8_t>(layout.exponent));
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
