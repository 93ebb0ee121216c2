#include "exporters/files/run_token.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>

#include "exporters/files/file_signals.hpp"
#include "exporters/files/safe_file.hpp"

namespace gradvane::exporters {
namespace {

constexpr const char* kName = "token";
constexpr std::size_t kShortest = 16;
constexpr std::size_t kLongest = 128;
constexpr std::size_t kRandomBytes = 16;

std::string random_token() {
  std::array<unsigned char, kRandomBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return {};
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

std::optional<std::string> kept_token(int directory, uid_t owner) {
  auto text = read_regular(directory, kName, kLongest + 1, owner);
  if (!text) return std::nullopt;
  if (text->ends_with('\n')) text->pop_back();
  if (is_access_token(*text)) return text;
  errno = EINVAL;
  return std::string();
}

}  // namespace

bool is_access_token(std::string_view text) noexcept {
  constexpr std::string_view kOthers = "-._~";
  const auto is_fine = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  };
  return text.size() >= kShortest && text.size() <= kLongest && std::ranges::all_of(text, is_fine);
}

std::string run_token(int directory, uid_t owner) {
  if (const auto kept = kept_token(directory, owner)) return *kept;
  if (errno != ENOENT) return {};
  const FileSignalsBlocked signals;
  std::string token = random_token();
  if (token.empty()) return {};
  const NewFile file = create_beside(directory, kName, 0600);
  if (!file.descriptor.is_open()) return {};
  const std::string line = token + '\n';
  const std::array<std::string_view, 1> parts{line};
  // Another rank may do the same: the first one's stays, and is there as a whole or not at all.
  const bool is_ours = write_all(file.descriptor.get(), parts) &&
                       ::linkat(directory, file.name.c_str(), directory, kName, 0) == 0;
  const int why = errno;
  ::unlinkat(directory, file.name.c_str(), 0);
  if (is_ours) return token;
  errno = why;
  return why == EEXIST ? kept_token(directory, owner).value_or(std::string()) : std::string();
}

}  // namespace gradvane::exporters
