#pragma once
// Rows of the option table: one function per kind of member.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "agent/public/option_table.hpp"

namespace gradvane::agent {

template <typename T>
bool parse_number(std::string_view text, T low, T high, T& out) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  if (!(value >= low && value <= high)) return false;  // NaN is refused too
  out = value;
  return true;
}

inline std::string format(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

inline bool parse_switch(std::string_view text, bool& out) {
  for (const std::string_view on : {"on", "true", "yes", "1"})
    if (text == on) return out = true, true;
  for (const std::string_view off : {"off", "false", "no", "0"})
    if (text == off) return out = false, true;
  return false;
}

inline constexpr std::string_view kSwitch = "on, off (also true, false, yes, no, 1, 0)";
inline constexpr int kMaxInt = std::numeric_limits<int>::max();
inline constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// One setter and getter per kind of member; the limits are template arguments so that a row of the
// table is one line.
template <bool Options::* member>
constexpr OptionSpec on_off(std::string_view key, std::string_view help) {
  return {key, kSwitch, help,
          [](Options& o, std::string_view text) { return parse_switch(text, o.*member); },
          [](const Options& o) { return std::string(o.*member ? "on" : "off"); }};
}

template <std::string Options::* member>
constexpr OptionSpec text(std::string_view key, std::string_view allowed, std::string_view help) {
  return {key, allowed, help,
          [](Options& o, std::string_view value) { return o.*member = value, true; },
          [](const Options& o) { return o.*member; }};
}

template <auto member, auto low, auto high>
constexpr OptionSpec whole(std::string_view key, std::string_view allowed, std::string_view help) {
  return {
      key, allowed, help,
      [](Options& o, std::string_view value) { return parse_number(value, low, high, o.*member); },
      [](const Options& o) { return std::to_string(o.*member); }};
}

template <double Options::* member>
constexpr OptionSpec amount(std::string_view key, std::string_view help) {
  return {key, "a finite number of at least 0", help,
          [](Options& o, std::string_view value) {
            return parse_number(value, 0.0, std::numeric_limits<double>::max(), o.*member);
          },
          [](const Options& o) { return format(o.*member); }};
}

/// A word for each value of an enumeration, in its order.
template <auto member, const auto& words>
constexpr OptionSpec choice(std::string_view key, std::string_view allowed, std::string_view help) {
  using Value = std::remove_reference_t<decltype(std::declval<Options&>().*member)>;
  return {key, allowed, help,
          [](Options& o, std::string_view text) {
            const auto found = std::find(words.begin(), words.end(), text);
            if (found == words.end()) return false;
            return o.*member = static_cast<Value>(found - words.begin()), true;
          },
          [](const Options& o) { return std::string(words[static_cast<std::size_t>(o.*member)]); }};
}

}  // namespace gradvane::agent
