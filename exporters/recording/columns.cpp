#include "exporters/recording/columns.hpp"

#include <bit>

namespace gradvane::exporters::recording {

void append_planes(std::string& out, std::span<const double> values) {
  const std::size_t begin = out.size();
  out.resize(begin + 8 * values.size());
  for (unsigned plane = 0; plane < 8; ++plane) {
    char* to = out.data() + begin + plane * values.size();
    for (const double value : values)
      *to++ = static_cast<char>(
          static_cast<unsigned char>(std::bit_cast<std::uint64_t>(value) >> (8 * plane)));
  }
}

bool read_planes(std::string_view planes, std::span<double> values) noexcept {
  if (planes.size() != 8 * values.size()) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t bits = 0;
    for (unsigned plane = 0; plane < 8; ++plane)
      bits |= std::uint64_t{static_cast<unsigned char>(planes[plane * values.size() + i])}
              << (8 * plane);
    values[i] = std::bit_cast<double>(bits);
  }
  return true;
}

ColumnReader::ColumnReader(std::string_view bytes) noexcept {
  WireReader from(bytes);
  std::uint64_t last = 0;
  while (from.ok() && from.left() > 0) {
    const std::uint64_t key = from.varint();
    const std::uint64_t id = key >> 2;
    const auto kind = static_cast<WireKind>(key & 3);
    if (id <= last || (key & 3) >= kWireKinds) from.fail();
    last = id;
    if (kind == WireKind::whole) {
      (void)from.varint();
    } else if (kind == WireKind::real) {
      (void)from.take(8);
    } else {
      const std::string_view column = from.counted();
      if (from.ok() && id < kMost) columns_[id] = column;
    }
  }
  ok_ = from.ok();
}

std::optional<std::string_view> ColumnReader::find(std::uint32_t id) const noexcept {
  return columns_[id];
}

}  // namespace gradvane::exporters::recording
