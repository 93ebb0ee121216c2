#pragma once
// Long columns of numbers as JSON, written straight into text: a tree of JSON values would take many times
// the memory.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "exporters/history/point_axis.hpp"

namespace gradvane::exporters {

/// Appends to an object that is open. Every call writes one key, with a comma where one is needed.
class ColumnJson {
 public:
  /// @param head  an object in JSON, to be continued
  explicit ColumnJson(std::string head);

  void open(std::string_view key, char bracket);  ///< '{' or '['
  void close(char bracket);                       ///< '}' or ']'
  /// Seven significant digits; what is not there is null.
  template <typename Range, typename Value>
  void numbers(std::string_view key, const Range& range, Value value);
  template <typename Range, typename Value>
  void integers(std::string_view key, const Range& range, Value value);
  /// `first`, `last` and `time` of each point.
  void points(std::span<const Point> points);
  /// The text, with the object closed.
  [[nodiscard]] std::string take();

  void begin_item();  ///< of an array that is open, or the comma before a key
  void number(std::optional<double> value);
  void integer(std::int64_t value);

 private:
  void key(std::string_view key);

  std::string text_;
};

template <typename Range, typename Value>
void ColumnJson::numbers(std::string_view key, const Range& range, Value value) {
  open(key, '[');
  for (const auto& item : range) number(std::invoke(value, item));
  close(']');
}

template <typename Range, typename Value>
void ColumnJson::integers(std::string_view key, const Range& range, Value value) {
  open(key, '[');
  for (const auto& item : range) integer(std::invoke(value, item));
  close(']');
}

}  // namespace gradvane::exporters
