#include "exporters/text_escape.hpp"

#include <cstddef>

namespace gradvane::exporters {
namespace {

/// Bytes of the UTF-8 character at the start of `text`; 0 where there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {  // neither overlong nor a surrogate
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;
    return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

/// Copies runs of plain bytes at once; `special` gives the replacement of one that is not, or nothing.
template <typename Special>
void append_escaped(std::string& out, std::string_view text, Special special) {
  std::size_t plain = 0;
  std::size_t i = 0;
  const auto replace = [&](std::size_t length, std::string_view by) {
    out.append(text, plain, i - plain).append(by);
    i += length;
    plain = i;
  };
  while (i < text.size()) {
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) {
      replace(1, "\xEF\xBF\xBD");
    } else if (const std::string_view by = length == 1 ? special(text[i]) : std::string_view{};
               !by.empty()) {
      replace(1, by);
    } else {
      i += length;
    }
  }
  out.append(text, plain);
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  append_escaped(out, text, [](char c) -> std::string_view {
    return c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : "";
  });
}

void append_help(std::string& out, std::string_view text) {
  append_escaped(out, text, [](char c) -> std::string_view {
    return c == '\\' ? "\\\\" : c == '\n' ? "\\n" : "";
  });
}

void append_html(std::string& out, std::string_view text) {
  append_escaped(out, text, [](char c) -> std::string_view {
    switch (c) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '"':
        return "&quot;";
      case '\'':
        return "&#39;";
      default:
        return "";
    }
  });
}

std::string html_of(std::string_view text) {
  std::string html;
  append_html(html, text);
  return html;
}

}  // namespace gradvane::exporters
