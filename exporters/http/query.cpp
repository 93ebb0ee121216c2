#include "exporters/http/query.hpp"

#include <algorithm>
#include <charconv>

namespace gradvane::exporters {
namespace {

std::string joined(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      result += ' ';
    } else if (text[i] != '%') {
      result += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) throw BadQuery("'%' must be followed by two hexadecimal digits");
      result += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return result;
}

}  // namespace

Query::Query(std::string_view text, std::initializer_list<std::string_view> allowed) {
  while (!text.empty()) {
    const auto end = text.find('&');
    const std::string_view pair = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    std::string key = decoded(pair.substr(0, equals));
    if (std::ranges::find(allowed, key) == allowed.end()) {
      throw BadQuery(allowed.size() == 0 ? "this address takes no query"
                                         : "unknown key '" + key + "'; allowed: " +
                                               joined({allowed.begin(), allowed.end()}));
    }
    std::string value =
        equals == std::string_view::npos ? std::string() : decoded(pair.substr(equals + 1));
    if (!values_.emplace(key, std::move(value)).second) {
      throw BadQuery("'" + key + "' is given twice; allowed: once");
    }
  }
}

std::string Query::text(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string() : found->second;
}

std::int64_t Query::number(std::string_view key, std::int64_t otherwise, std::int64_t least,
                           std::int64_t most) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return otherwise;
  const std::string& text = found->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw BadQuery(std::string(key) + " is '" + text + "'; allowed: a whole number from " +
                   std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

std::size_t Query::word(std::string_view key, std::span<const std::string_view> words,
                        std::string_view otherwise) const {
  const auto found = values_.find(key);
  const std::string_view value = found == values_.end() ? otherwise : found->second;
  const auto word = std::ranges::find(words, value);
  if (word == words.end()) {
    throw BadQuery(std::string(key) + " is '" + std::string(value) +
                   "'; allowed: " + joined(words));
  }
  return static_cast<std::size_t>(word - words.begin());
}

}  // namespace gradvane::exporters
