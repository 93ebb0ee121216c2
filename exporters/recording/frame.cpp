#include "exporters/recording/frame.hpp"

#include <zlib.h>

#include <algorithm>

#include "exporters/recording/wire.hpp"

namespace gradvane::exporters::recording {
namespace {

// Not UTF-8, no text, and not what numbers look like.
constexpr std::string_view kFrameMagic{"\xF7GV\x9A", 4};
constexpr std::size_t kCheckedByHeader = kFrameHeaderSize - 4;
constexpr std::uint8_t kPacked = 1;

void append_header(std::string& out, const FrameHeader& header) {
  const std::size_t begin = out.size();
  out += kFrameMagic;
  out += static_cast<char>(header.type);
  out += static_cast<char>(header.is_packed ? kPacked : 0);
  out.append(2, '\0');  // to be used some day; readers ignore it
  append_u64(out, header.sequence);
  append_u32(out, header.stored_size);
  append_u32(out, header.raw_size);
  append_u32(out, header.payload_crc);
  append_u32(out, crc32_of(std::string_view(out).substr(begin)));
}

}  // namespace

std::uint32_t crc32_of(std::string_view bytes) noexcept {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void append_frame(std::string& out, FrameType type, std::uint64_t sequence, std::string_view raw,
                  Deflater& deflater) {
  const std::size_t begin = out.size();
  out.append(kFrameHeaderSize, '\0');
  FrameHeader header{.type = static_cast<std::uint8_t>(type), .sequence = sequence};
  const Packing packing = type == FrameType::detail ? Packing::planes : Packing::words;
  header.is_packed = deflater.append(out, raw, packing);
  if (!header.is_packed) out += raw;
  const std::size_t stored = out.size() - begin - kFrameHeaderSize;
  header.stored_size = static_cast<std::uint32_t>(stored);
  header.raw_size = static_cast<std::uint32_t>(raw.size());
  header.payload_crc = crc32_of(std::string_view(out).substr(begin + kFrameHeaderSize));
  std::string front;
  append_header(front, header);
  std::ranges::copy(front, out.begin() + static_cast<std::ptrdiff_t>(begin));
}

std::optional<FrameHeader> frame_header_of(std::string_view bytes) noexcept {
  if (bytes.size() < kFrameHeaderSize || !bytes.starts_with(kFrameMagic)) return std::nullopt;
  WireReader reader(bytes.substr(kFrameMagic.size(), kFrameHeaderSize - kFrameMagic.size()));
  FrameHeader header;
  header.type = reader.u8();
  header.is_packed = (reader.u8() & kPacked) != 0;
  (void)reader.take(2);
  header.sequence = reader.u64();
  header.stored_size = reader.u32();
  header.raw_size = reader.u32();
  header.payload_crc = reader.u32();
  if (reader.u32() != crc32_of(bytes.substr(0, kCheckedByHeader))) return std::nullopt;
  return header;
}

FrameScanner::FrameScanner(std::string_view bytes) noexcept
    : bytes_(bytes), work_left_(8 * bytes.size() + 1) {}

std::optional<Frame> FrameScanner::next() noexcept {
  std::size_t at = position_;
  while (work_left_ > 0) {
    at = bytes_.find(kFrameMagic, at);
    if (at == std::string_view::npos) break;
    const auto header = frame_header_of(bytes_.substr(at));
    if (!header) {
      ++at;
      continue;
    }
    const std::string_view rest = bytes_.substr(at + kFrameHeaderSize);
    if (header->stored_size <= rest.size()) {
      const std::string_view stored = rest.substr(0, header->stored_size);
      work_left_ -= std::min(work_left_, stored.size());
      if (crc32_of(stored) == header->payload_crc) {
        skipped_ += at - position_;
        position_ = at + kFrameHeaderSize + stored.size();
        return Frame{*header, stored};
      }
    }
    ++damaged_;
    ++at;
  }
  skipped_ += bytes_.size() - position_;
  position_ = bytes_.size();
  return std::nullopt;
}

std::optional<std::string> payload_of(const Frame& frame, std::size_t most) {
  if (frame.header.raw_size > most) return std::nullopt;
  if (frame.header.is_packed) return inflate_exactly(frame.stored, frame.header.raw_size);
  if (frame.stored.size() != frame.header.raw_size) return std::nullopt;
  return std::string(frame.stored);
}

}  // namespace gradvane::exporters::recording
