#include "collectors/process_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

namespace gradvane::collectors {

std::optional<std::int64_t> resident_bytes() noexcept {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 128> buffer{};
  const ssize_t got = ::read(file, buffer.data(), buffer.size());
  ::close(file);
  if (got <= 0) return std::nullopt;
  // "size resident shared ...", in pages
  const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::int64_t pages = 0;
  const auto [end, error] =
      std::from_chars(text.data() + space + 1, text.data() + text.size(), pages);
  if (error != std::errc{}) return std::nullopt;
  return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace gradvane::collectors
