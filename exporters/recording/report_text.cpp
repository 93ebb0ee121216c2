#include "exporters/recording/report_text.hpp"

#include <algorithm>

namespace gradvane::exporters::recording {

std::string plain(std::string_view text) {
  std::string safe(text);
  std::ranges::replace_if(
      safe, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return safe;
}

void line(std::string& text, std::string_view words) { text.append("  ").append(words) += '\n'; }

}  // namespace gradvane::exporters::recording
