#pragma once
// What bytes are known by.
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradvane::record {

/// A changed bit always changes it, and so do words that change places. One pass, no memory.
/// @param seed  the checksum of the bytes before
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) noexcept;

}  // namespace gradvane::record
