#pragma once
// What every enumeration of a record has: names, a count, an index into arrays. Its names stand next to it. They
// are label values of metrics and values in JSON, on which readers rely.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace gradvane::record {

/// The names of E's enumerators, which count from 0, in their order. An enumeration with names specializes it, and
/// says that the specialization is hidden: GCC would export it from a library whose symbols are hidden.
template <typename E>
inline constexpr std::nullptr_t kNames = nullptr;

template <typename E>
concept has_names = std::is_enum_v<E> && !std::is_same_v<decltype(kNames<E>), const std::nullptr_t>;

/// How many enumerators E has.
template <has_names E>
inline constexpr int kCount = static_cast<int>(kNames<E>.size());

/// Where an enumerator's value is in an array with one for each.
template <typename E>
  requires std::is_enum_v<E>
constexpr std::size_t index_of(E value) noexcept {
  return static_cast<std::size_t>(value);
}

template <has_names E>
constexpr std::string_view name_of(E value) noexcept {
  return kNames<E>[index_of(value)];
}

/// The enumerator with that name, if there is one.
template <has_names E>
constexpr std::optional<E> named(std::string_view name) noexcept {
  const auto found = std::ranges::find(kNames<E>, name);
  if (found == kNames<E>.end()) return std::nullopt;
  return static_cast<E>(found - kNames<E>.begin());
}

}  // namespace gradvane::record
