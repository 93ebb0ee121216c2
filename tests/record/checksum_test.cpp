#include "record/checksum.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace gradvane::record {
namespace {

template <typename Number>
std::span<const std::byte> bytes_of(const std::vector<Number>& numbers) {
  return std::as_bytes(std::span(numbers));
}

TEST(Checksum, EachChangedBitChangesIt) {
  for (const std::size_t size : {1U, 7U, 8U, 31U, 32U, 33U, 1000U}) {
    std::vector<std::uint8_t> bytes(size, 0x5A);
    const std::uint64_t before = checksum(bytes_of(bytes), 1);
    for (std::size_t at = 0; at < size; ++at)
      for (int bit = 0; bit < 8; ++bit) {
        bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1 << bit));
        EXPECT_NE(checksum(bytes_of(bytes), 1), before) << size << ' ' << at << ' ' << bit;
        bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1 << bit));
      }
    EXPECT_EQ(checksum(bytes_of(bytes), 1), before);
    EXPECT_NE(checksum(bytes_of(bytes), 2), before) << "what came before counts";
  }
}

TEST(Checksum, WordsThatChangePlacesChangeIt) {
  std::vector<std::uint64_t> words(64);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 0x0101010101010101;
  const std::uint64_t before = checksum(bytes_of(words), 0);
  for (std::size_t i = 0; i < words.size(); ++i)
    for (std::size_t j = i + 1; j < words.size(); ++j) {
      std::swap(words[i], words[j]);
      EXPECT_NE(checksum(bytes_of(words), 0), before) << i << ' ' << j;
      std::swap(words[i], words[j]);
    }
}

}  // namespace
}  // namespace gradvane::record
