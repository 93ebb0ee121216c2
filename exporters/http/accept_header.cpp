#include "exporters/http/accept_header.hpp"

#include <algorithm>
#include <charconv>

namespace gradvane::exporters {
namespace {

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Cuts the text before the first `separator` off the front of `rest`.
std::string_view next_part(std::string_view& rest, char separator) {
  const auto end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return trim(part);
}

double parse_q(std::string_view text) {
  double q = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), q);
  const bool is_whole = result.ec == std::errc{} && result.ptr == text.data() + text.size();
  return is_whole && q >= 0 && q <= 1 ? q : 0;
}

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::vector<AcceptItem> parse_accept(std::string_view header) {
  std::vector<AcceptItem> items;
  while (!header.empty()) {
    std::string_view entry = next_part(header, ',');
    AcceptItem item{.value = next_part(entry, ';'), .version = {}};
    while (!entry.empty()) {
      std::string_view parameter = next_part(entry, ';');
      const std::string_view name = next_part(parameter, '=');
      if (equals_ignoring_case(name, "q")) item.q = parse_q(trim(parameter));
      if (equals_ignoring_case(name, "version")) item.version = unquoted(trim(parameter));
    }
    if (!item.value.empty()) items.push_back(item);
  }
  return items;
}

bool accepts_gzip(std::string_view accept_encoding) noexcept try {
  double by_name = -1;
  double by_star = -1;
  for (const AcceptItem& item : parse_accept(accept_encoding)) {
    if (equals_ignoring_case(item.value, "gzip")) by_name = std::max(by_name, item.q);
    if (item.value == "*") by_star = std::max(by_star, item.q);
  }
  return (by_name >= 0 ? by_name : by_star) > 0;
} catch (...) {
  return false;
}

}  // namespace gradvane::exporters
