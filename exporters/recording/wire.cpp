#include "exporters/recording/wire.hpp"

namespace gradvane::exporters::recording {
namespace {

template <typename Value>
void append_fixed(std::string& out, Value value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

template <typename Value>
Value fixed_of(std::string_view bytes) noexcept {
  Value value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value |=
        static_cast<Value>(static_cast<Value>(static_cast<unsigned char>(bytes[i])) << (8 * i));
  return value;
}

}  // namespace

void append_u32(std::string& out, std::uint32_t value) { append_fixed(out, value); }

void append_u64(std::string& out, std::uint64_t value) { append_fixed(out, value); }

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(static_cast<unsigned char>(value | 0x80));
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void append_real(std::string& out, double value) {
  append_u64(out, std::bit_cast<std::uint64_t>(value));
}

void put_u32(std::string& out, std::size_t at, std::uint32_t value) noexcept {
  for (std::size_t i = 0; i < 4; ++i)
    out[at + i] = static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

void append_key(std::string& out, std::uint32_t id, WireKind kind) {
  append_varint(out, (std::uint64_t{id} << 2) | static_cast<std::uint64_t>(kind));
}

std::uint8_t WireReader::u8() noexcept { return fixed_of<std::uint8_t>(take(1)); }

std::uint32_t WireReader::u32() noexcept { return fixed_of<std::uint32_t>(take(4)); }

std::uint64_t WireReader::u64() noexcept { return fixed_of<std::uint64_t>(take(8)); }

std::uint64_t WireReader::varint() noexcept {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t byte = u8();
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if ((byte & 0x80) == 0) {
      if (shift == 63 && byte > 1) fail();  // bits that a number has not
      return ok_ ? value : 0;
    }
  }
  fail();
  return 0;
}

std::string_view WireReader::take(std::size_t count) noexcept {
  if (count > left_.size()) {
    fail();
    return {};
  }
  const std::string_view taken = left_.substr(0, count);
  left_.remove_prefix(count);
  return taken;
}

void WireReader::fail() noexcept {
  ok_ = false;
  left_ = {};
}

}  // namespace gradvane::exporters::recording
