#include "exporters/recording/file_header.hpp"

#include "exporters/recording/frame.hpp"
#include "exporters/recording/wire.hpp"

namespace gradvane::exporters::recording {
namespace {

// As PNG does it: a transfer that takes this for text damages the first line.
constexpr std::string_view kFileMagic{"\x8AGVREC\r\n", 8};
constexpr std::size_t kChecked = kFileHeaderSize - 4;

}  // namespace

std::string bytes_of(const FileHeader& header) {
  std::string bytes(kFileMagic);
  append_u32(bytes, header.version);
  append_u64(bytes, header.ring_size);
  append_u64(bytes, static_cast<std::uint64_t>(header.pid));
  append_u64(bytes, static_cast<std::uint64_t>(header.rank));
  append_real(bytes, header.start_time);
  bytes.resize(kChecked, '\0');
  append_u32(bytes, crc32_of(bytes));
  return bytes;
}

bool has_file_magic(std::string_view bytes) noexcept { return bytes.starts_with(kFileMagic); }

std::optional<FileHeader> file_header_of(std::string_view bytes) noexcept {
  if (!has_file_magic(bytes) || bytes.size() < kFileHeaderSize) return std::nullopt;
  WireReader reader(bytes.substr(kFileMagic.size(), kFileHeaderSize - kFileMagic.size()));
  FileHeader header;
  header.version = reader.u32();
  header.ring_size = reader.u64();
  header.pid = static_cast<std::int64_t>(reader.u64());
  header.rank = static_cast<std::int64_t>(reader.u64());
  header.start_time = reader.real();
  WireReader check(bytes.substr(kChecked, 4));
  if (check.u32() != crc32_of(bytes.substr(0, kChecked))) return std::nullopt;
  return header;
}

}  // namespace gradvane::exporters::recording
