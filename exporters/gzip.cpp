#include "exporters/gzip.hpp"

#include <zlib.h>

#include <limits>

namespace gradvane::exporters {

std::optional<std::string> gzip(std::string_view text) {
  constexpr int kGzipWindow = 15 + 16;  // largest window; 16 asks for a gzip header
  constexpr int kMemoryLevel = 8;       // zlib's default
  if (text.size() > std::numeric_limits<uInt>::max() / 2) return std::nullopt;

  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    return std::nullopt;
  }
  std::string out;
  out.resize(deflateBound(&stream, static_cast<uLong>(text.size())));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // zlib only reads it
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return std::nullopt;
  return out;
}

}  // namespace gradvane::exporters
