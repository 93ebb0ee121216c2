#pragma once
// Numbers and words as bytes: little-endian, the same on every machine. docs/recording-format.md.
//
// A message is a sequence of fields with ascending ids, each with its kind, so that a reader steps over
// what it does not know. Nothing is copied as it lies in memory: structs grow, files stay.
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradvane::exporters::recording {

enum class WireKind : std::uint8_t {
  whole,  ///< zigzag varint
  real,   ///< 8 bytes, IEEE 754
  bytes,  ///< a length of 4 bytes, then so many
};
inline constexpr int kWireKinds = 3;

constexpr std::uint64_t zigzag(std::int64_t value) noexcept {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t unzigzag(std::uint64_t value) noexcept {
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

void append_u32(std::string& out, std::uint32_t value);
void append_u64(std::string& out, std::uint64_t value);
void append_varint(std::string& out, std::uint64_t value);
void append_real(std::string& out, double value);
/// Overwrites 4 bytes at `at`.
void put_u32(std::string& out, std::size_t at, std::uint32_t value) noexcept;
void append_key(std::string& out, std::uint32_t id, WireKind kind);

/// Takes bytes from the front of a text. What is not there makes it fail for good, and reads as zero.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) noexcept : left_(bytes) {}

  [[nodiscard]] std::uint8_t u8() noexcept;
  [[nodiscard]] std::uint32_t u32() noexcept;
  [[nodiscard]] std::uint64_t u64() noexcept;
  [[nodiscard]] std::uint64_t varint() noexcept;
  [[nodiscard]] double real() noexcept { return std::bit_cast<double>(u64()); }
  [[nodiscard]] std::string_view take(std::size_t count) noexcept;
  /// A length of 4 bytes, then so many.
  [[nodiscard]] std::string_view counted() noexcept { return take(u32()); }

  [[nodiscard]] std::size_t left() const noexcept { return left_.size(); }
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  void fail() noexcept;

 private:
  std::string_view left_;
  bool ok_ = true;
};

}  // namespace gradvane::exporters::recording
