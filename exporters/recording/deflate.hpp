#pragma once
// Packing and unpacking of payloads, by zlib.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace gradvane::exporters::recording {

/// How what is packed looks.
enum class Packing : std::uint8_t {
  words,   ///< repeats anywhere
  planes,  ///< bytes that look like their neighbour: only such runs are sought, in half the time
};

/// Keeps zlib's memory (some 256 KiB) from one payload to the next.
class Deflater {
 public:
  Deflater();
  ~Deflater();
  Deflater(const Deflater&) = delete;  // it owns zlib's state
  Deflater& operator=(const Deflater&) = delete;

  /// Puts the packed bytes behind what `out` has. False, and `out` as it was, where they would not be fewer
  /// or zlib is out of memory.
  bool append(std::string& out, std::string_view raw, Packing packing) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The most bytes that deflate can make of `packed` bytes.
[[nodiscard]] std::size_t most_inflated(std::size_t packed) noexcept;

/// Exactly `raw_size` bytes, or nothing: no more is allocated, whatever `packed` unpacks to.
[[nodiscard]] std::optional<std::string> inflate_exactly(std::string_view packed,
                                                         std::size_t raw_size);

}  // namespace gradvane::exporters::recording
