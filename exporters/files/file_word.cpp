#include "exporters/files/file_word.hpp"

#include <algorithm>

namespace gradvane::exporters {

std::string file_word(std::string_view text) {
  constexpr std::size_t kMost = 100;
  std::string word(text.substr(0, kMost));
  std::ranges::replace_if(
      word,
      [](char c) {
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
        return !is_plain;
      },
      '_');
  if (word.empty() || word.front() == '.') word.insert(0, "_");
  return word;
}

}  // namespace gradvane::exporters
