#include "exporters/api/column_json.hpp"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "exporters/json/record_json.hpp"

namespace gradvane::exporters {
namespace {

constexpr int kDigits = 7;
constexpr std::size_t kLongest = 32;  // of a number

bool is_first(const std::string& text) { return text.back() == '{' || text.back() == '['; }

}  // namespace

ColumnJson::ColumnJson(std::string head) : text_(std::move(head)) {
  text_.pop_back();  // its bracket
}

void ColumnJson::begin_item() {
  if (!is_first(text_)) text_ += ',';
}

void ColumnJson::key(std::string_view key) {
  begin_item();
  text_.append(to_text(std::string(key))) += ':';
}

void ColumnJson::open(std::string_view name, char bracket) {
  if (name.empty()) {
    begin_item();
  } else {
    key(name);
  }
  text_ += bracket;
}

void ColumnJson::close(char bracket) { text_ += bracket; }

void ColumnJson::number(std::optional<double> value) {
  begin_item();
  if (!value) {
    text_ += "null";
    return;
  }
  std::array<char, kLongest> buffer;
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), *value,
                                     std::chars_format::general, kDigits);
  text_.append(buffer.data(), written.ptr);
}

void ColumnJson::integer(std::int64_t value) {
  begin_item();
  text_.append(std::to_string(value));
}

void ColumnJson::points(std::span<const Point> points) {
  integers("first", points, &Point::first);
  integers("last", points, &Point::last);
  open("time", '[');
  for (const Point& point : points) {
    // Seven digits would be minutes: milliseconds are asked for.
    begin_item();
    std::array<char, kLongest> buffer;
    const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), point.time,
                                       std::chars_format::fixed, 3);
    text_.append(buffer.data(), written.ptr);
  }
  close(']');
}

std::string ColumnJson::take() {
  text_ += '}';
  return std::move(text_);
}

}  // namespace gradvane::exporters
