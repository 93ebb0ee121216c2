#include "exporters/text/text_escape.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

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

/// Of one character that utf8_length() has measured.
char32_t code_point_of(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead;
  char32_t code = lead & (0x7FU >> character.size());
  for (const char c : character.substr(1))
    code = code << 6U | (static_cast<unsigned char>(c) & 0x3FU);
  return code;
}

struct Range {
  char32_t first;
  char32_t last;
};

/// Categories Cc, Cf, Zl and Zp of Unicode 16, in order.
constexpr std::array kNotShown = std::to_array<Range>({
    {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},       {0x600, 0x605},
    {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},
    {0x8E2, 0x8E2},     {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},
    {0x2060, 0x206F},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
    {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
    {0xE0001, 0xE0001}, {0xE0020, 0xE007F},
});

bool is_shown(char32_t code) {
  const auto after = std::ranges::upper_bound(kNotShown, code, {}, &Range::first);
  return after == kNotShown.begin() || code > std::prev(after)->last;
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

std::string plain(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    safe.append(length == 0                          ? "\xEF\xBF\xBD"
                : is_shown(code_point_of(character)) ? character
                                                     : "?");
    text.remove_prefix(character.size());
  }
  return safe;
}

std::string brief(std::string_view text) {
  constexpr std::size_t kMost = 1024;
  constexpr std::string_view kEllipsis = "\xE2\x80\xA6";
  if (text.size() <= kMost) return std::string(text);
  std::size_t end = kMost - kEllipsis.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) --end;
  return std::string(text.substr(0, end)).append(kEllipsis);
}

std::string html_of(std::string_view text) {
  std::string html;
  append_html(html, text);
  return html;
}

}  // namespace gradvane::exporters
