#include "exporters/recording/deflate.hpp"

#include <zlib.h>

#include <limits>

namespace gradvane::exporters::recording {
namespace {

constexpr int kLevel = 1;  // numbers hardly shrink further, and the worker has other things to do
constexpr int kRawWindow = -15;  // largest window, no header: a frame has a checksum of its own
constexpr int kMemoryLevel = 8;  // zlib's default
constexpr std::size_t kMost = 1U << 30;

Bytef* bytes_of(std::string_view text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // zlib only reads it
}

}  // namespace

struct Deflater::State {
  z_stream stream{};
  bool is_ready = false;
};

Deflater::Deflater() : state_(std::make_unique<State>()) {
  state_->is_ready = deflateInit2(&state_->stream, kLevel, Z_DEFLATED, kRawWindow, kMemoryLevel,
                                  Z_DEFAULT_STRATEGY) == Z_OK;
}

Deflater::~Deflater() {
  if (state_->is_ready) deflateEnd(&state_->stream);
}

bool Deflater::append(std::string& out, std::string_view raw, Packing packing) noexcept try {
  z_stream& stream = state_->stream;
  if (!state_->is_ready || raw.size() < 2 || raw.size() > kMost) return false;
  const int strategy = packing == Packing::planes ? Z_RLE : Z_DEFAULT_STRATEGY;
  if (deflateReset(&stream) != Z_OK || deflateParams(&stream, kLevel, strategy) != Z_OK)
    return false;
  const std::size_t begin = out.size();
  out.resize(begin + raw.size() - 1);  // more would be no gain
  stream.next_in = bytes_of(raw);
  stream.avail_in = static_cast<uInt>(raw.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data() + begin);
  stream.avail_out = static_cast<uInt>(raw.size() - 1);
  const bool fits = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(begin + (fits ? stream.total_out : 0));
  return fits;
} catch (...) {
  return false;
}

std::size_t most_inflated(std::size_t packed) noexcept {
  constexpr std::size_t kFactor = 1032;  // two bits for 258 bytes
  if (packed > std::numeric_limits<std::size_t>::max() / kFactor - 1) return packed;
  return kFactor * (packed + 1);
}

std::optional<std::string> inflate_exactly(std::string_view packed, std::size_t raw_size) {
  if (packed.size() > kMost || raw_size > kMost || raw_size > most_inflated(packed.size()))
    return std::nullopt;
  z_stream stream{};
  if (inflateInit2(&stream, kRawWindow) != Z_OK) return std::nullopt;
  std::string raw(raw_size, '\0');
  stream.next_in = bytes_of(packed);
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(raw.data());
  stream.avail_out = static_cast<uInt>(raw.size());
  const bool is_whole = inflate(&stream, Z_FINISH) == Z_STREAM_END &&
                        stream.total_out == raw_size && stream.avail_in == 0;
  inflateEnd(&stream);
  if (!is_whole) return std::nullopt;
  return raw;
}

}  // namespace gradvane::exporters::recording
