#pragma once
// Structs as messages. A struct is described once, by a function `describe(archive, struct)` that names the
// id of every field; writing and reading both follow it, so they cannot differ.
#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "exporters/recording/wire.hpp"
#include "record/incident.hpp"
#include "record/names.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::exporters::recording {

/// `T` with or without const: what describe() is handed for writing and for reading.
template <typename T, typename Struct>
concept like = std::same_as<std::remove_const_t<T>, Struct>;

/// What a reader may spend, and what it came across.
struct ReadContext {
  std::size_t bytes_left = 0;      ///< of memory for what is read: a length in a file is no reason
  std::int64_t unknown_words = 0;  ///< enumerators of a newer version, left as they were

  [[nodiscard]] bool spend(std::size_t count, std::size_t size) noexcept {
    if (size != 0 && count > bytes_left / size) return false;
    bytes_left -= count * size;
    return true;
  }
};

namespace detail {

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsArray : std::false_type {};
template <typename T, std::size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};

template <typename T>
concept whole = std::integral<T> || std::is_enum_v<T>;

}  // namespace detail

class WriteArchive {
 public:
  explicit WriteArchive(std::string& out) : out_(out) {}

  /// A field; one that is absent is left out.
  template <typename T>
  void operator()(std::uint32_t id, const T& value) {
    if constexpr (detail::IsOptional<T>::value) {
      if (value) (*this)(id, *value);
    } else if constexpr (detail::whole<T>) {
      append_key(out_, id, WireKind::whole);
      append_varint(out_, zigzag(static_cast<std::int64_t>(value)));
    } else if constexpr (std::same_as<T, double>) {
      append_key(out_, id, WireKind::real);
      append_real(out_, value);
    } else {
      append_key(out_, id, WireKind::bytes);
      counted([&] { body(value); });
    }
  }

  /// The first `count` of `values`.
  template <std::size_t N>
  void prefix(std::uint32_t id, const std::array<double, N>& values, std::int32_t count) {
    const auto kept = static_cast<std::size_t>(std::clamp(count, 0, static_cast<int>(N)));
    append_key(out_, id, WireKind::bytes);
    counted([&] {
      append_varint(out_, kept);
      for (std::size_t i = 0; i < kept; ++i) append_real(out_, values[i]);
    });
  }

 private:
  template <typename Write>
  void counted(Write write) {
    const std::size_t at = out_.size();
    append_u32(out_, 0);
    write();
    put_u32(out_, at, static_cast<std::uint32_t>(out_.size() - at - 4));
  }

  /// Without a length: what contains it has one.
  template <typename T>
  void body(const T& value) {
    if constexpr (std::same_as<T, std::string>) {
      out_ += value;
    } else if constexpr (detail::IsVector<T>::value || detail::IsArray<T>::value) {
      append_varint(out_, value.size());
      for (const auto& one : value) element(one);
    } else {
      describe(*this, value);
    }
  }

  template <typename T>
  void element(const T& value) {
    if constexpr (detail::IsOptional<T>::value) {
      out_ += static_cast<char>(value ? 1 : 0);
      if (value) element(*value);
    } else if constexpr (detail::whole<T>) {
      append_varint(out_, zigzag(static_cast<std::int64_t>(value)));
    } else if constexpr (std::same_as<T, double>) {
      append_real(out_, value);
    } else {
      counted([&] { body(value); });
    }
  }

  std::string& out_;
};

/// Reads what WriteArchive wrote, of this version or another. Fields that are not there leave the value as it
/// is; fields that nobody asks for are stepped over. ok() after finish() says whether it was well-formed.
class ReadArchive {
 public:
  ReadArchive(std::string_view bytes, ReadContext& context) noexcept
      : reader_(bytes), context_(context) {
    next_key();
  }

  template <typename T>
  void operator()(std::uint32_t id, T& value) {
    if constexpr (detail::IsOptional<T>::value) {
      if (!seek(id)) return;
      typename T::value_type inner{};
      read_field(inner);
      if (ok()) value = std::move(inner);
      next_key();
    } else {
      if (!seek(id)) return;
      read_field(value);
      next_key();
    }
  }

  template <std::size_t N>
  void prefix(std::uint32_t id, std::array<double, N>& values, std::int32_t& count) {
    if (!seek(id)) return;
    if (kind_ != WireKind::bytes) return reader_.fail();
    WireReader inner(reader_.counted());
    const std::uint64_t there = inner.varint();
    if (there > inner.left() / 8) return reader_.fail();
    count = static_cast<std::int32_t>(std::min<std::uint64_t>(there, N));
    for (std::int32_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = inner.real();
    next_key();
  }

  /// To the end of the message: what follows must be well-formed even where nobody knows it.
  bool finish() noexcept {
    while (ok() && has_key_) skip();
    return ok();
  }
  [[nodiscard]] bool ok() const noexcept { return reader_.ok(); }

 private:
  bool seek(std::uint32_t id) noexcept {
    while (ok() && has_key_ && id_ < id) skip();
    return ok() && has_key_ && id_ == id;
  }

  void next_key() noexcept {
    has_key_ = false;
    if (!ok() || reader_.left() == 0) return;
    const std::uint64_t key = reader_.varint();
    const std::uint64_t id = key >> 2;
    const std::uint64_t kind = key & 3;
    if (!ok() || id <= id_ || id > std::numeric_limits<std::uint32_t>::max() || kind >= kWireKinds)
      return reader_.fail();
    id_ = static_cast<std::uint32_t>(id);
    kind_ = static_cast<WireKind>(kind);
    has_key_ = true;
  }

  void skip() noexcept {
    if (kind_ == WireKind::whole)
      (void)reader_.varint();
    else if (kind_ == WireKind::real)
      (void)reader_.take(8);
    else
      (void)reader_.counted();
    next_key();
  }

  template <typename T>
  void read_field(T& value) {
    if constexpr (detail::whole<T>) {
      if (kind_ != WireKind::whole) return reader_.fail();
      read_whole(reader_, value);
    } else if constexpr (std::same_as<T, double>) {
      if (kind_ != WireKind::real) return reader_.fail();
      value = reader_.real();
    } else {
      if (kind_ != WireKind::bytes) return reader_.fail();
      read_body(reader_.counted(), value);
    }
  }

  template <typename T>
  void read_whole(WireReader& from, T& value) noexcept {
    const std::int64_t number = unzigzag(from.varint());
    if constexpr (std::is_enum_v<T>) {
      if (number < 0 || number >= record::kCount<T>)
        ++context_.unknown_words;
      else
        value = static_cast<T>(number);
    } else if constexpr (std::same_as<T, bool>) {
      value = number != 0;
    } else if constexpr (std::same_as<T, std::uint64_t>) {
      value = static_cast<std::uint64_t>(number);
    } else {
      if (!std::in_range<T>(number)) return reader_.fail();
      value = static_cast<T>(number);
    }
  }

  template <typename T>
  void read_body(std::string_view bytes, T& value) {
    if (!ok()) return;
    if constexpr (std::same_as<T, std::string>) {
      if (!context_.spend(bytes.size(), 1)) return reader_.fail();
      value = bytes;
    } else if constexpr (detail::IsVector<T>::value || detail::IsArray<T>::value) {
      WireReader from(bytes);
      read_elements(from, value);
    } else {
      ReadArchive inner(bytes, context_);
      describe(inner, value);
      if (!inner.finish()) reader_.fail();
    }
  }

  template <typename T>
  void read_elements(WireReader& from, T& values) {
    const std::uint64_t count = from.varint();
    // Every element takes a byte at least.
    if (!from.ok() || count > from.left()) return reader_.fail();
    if constexpr (detail::IsVector<T>::value) {
      if (!context_.spend(count, sizeof(typename T::value_type))) return reader_.fail();
      values.clear();
      values.resize(count);
    }
    const std::size_t kept = std::min<std::size_t>(count, values.size());
    for (std::size_t i = 0; i < kept && ok(); ++i) read_element(from, values[i]);
    if (!from.ok()) reader_.fail();
    // An array that has grown since has more; what its elements are is known, what they mean is not.
  }

  template <typename T>
  void read_element(WireReader& from, T& value) {
    if constexpr (detail::IsOptional<T>::value) {
      if (from.u8() == 0) {
        value.reset();
      } else {
        read_element(from, value.emplace());
      }
    } else if constexpr (detail::whole<T>) {
      read_whole(from, value);
    } else if constexpr (std::same_as<T, double>) {
      value = from.real();
    } else {
      read_body(from.counted(), value);
      if (!from.ok()) reader_.fail();
    }
  }

  WireReader reader_;
  ReadContext& context_;
  std::uint32_t id_ = 0;  ///< of the field that is next; ids begin at 1
  WireKind kind_ = WireKind::whole;
  bool has_key_ = false;
};

}  // namespace gradvane::exporters::recording
