#pragma once
// Tables as columns: one field holds one number of every row. Neighbours in a column look alike, so that they
// pack well; a column in which every row has the usual value is left out.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/recording/archive.hpp"

namespace gradvane::exporters::recording {

/// Eight planes: the lowest byte of every value, then the next one, up to sign and exponent.
void append_planes(std::string& out, std::span<const double> values);
/// False where `planes` has another size than `values` needs.
[[nodiscard]] bool read_planes(std::string_view planes, std::span<double> values) noexcept;

class ColumnWriter {
 public:
  explicit ColumnWriter(std::string& out) : out_(out) {}

  template <typename Rows, typename Get>
  void wholes(std::uint32_t id, const Rows& rows, Get get, std::int64_t usual) {
    if (std::ranges::all_of(rows, [&](const auto& row) { return get(row) == usual; })) return;
    column(id, [&] {
      for (const auto& row : rows) append_varint(out_, zigzag(get(row)));
    });
  }

  template <typename Rows, typename Get>
  void reals(std::uint32_t id, const Rows& rows, Get get) {
    values_.clear();
    for (const auto& row : rows) values_.push_back(get(row));
    column(id, [&] { append_planes(out_, values_); });
  }

  /// A bit for each row that has a value, then those values.
  template <typename Rows, typename Get>
  void optional_reals(std::uint32_t id, const Rows& rows, Get get) {
    values_.clear();
    for (const auto& row : rows)
      if (get(row)) values_.push_back(*get(row));
    if (values_.empty()) return;
    column(id, [&] {
      bits(rows, [&](const auto& row) { return get(row).has_value(); });
      append_planes(out_, values_);
    });
  }

  /// Which rows have it.
  template <typename Rows, typename Has>
  void presence(std::uint32_t id, const Rows& rows, Has has) {
    column(id, [&] { bits(rows, has); });
  }

 private:
  template <typename Write>
  void column(std::uint32_t id, Write write) {
    append_key(out_, id, WireKind::bytes);
    const std::size_t at = out_.size();
    append_u32(out_, 0);
    write();
    put_u32(out_, at, static_cast<std::uint32_t>(out_.size() - at - 4));
  }

  template <typename Rows, typename Has>
  void bits(const Rows& rows, Has has) {
    unsigned byte = 0;
    unsigned filled = 0;
    for (const auto& row : rows) {
      byte |= static_cast<unsigned>(has(row) ? 1U : 0U) << filled;
      if (++filled < 8) continue;
      out_ += static_cast<char>(byte);
      byte = filled = 0;
    }
    if (filled > 0) out_ += static_cast<char>(byte);
  }

  std::string& out_;
  std::vector<double> values_;
};

/// The fields of a message by id, for columns: they are few, and all of one kind but for counts.
class ColumnReader {
 public:
  explicit ColumnReader(std::string_view bytes) noexcept;

  template <typename Rows, typename Set>
  void wholes(std::uint32_t id, Rows& rows, Set set) {
    const auto column = find(id);
    if (!column) return;
    WireReader from(*column);
    for (auto& row : rows) set(row, unzigzag(from.varint()));
    if (!from.ok() || from.left() != 0) ok_ = false;
  }

  template <typename Rows, typename Set>
  void reals(std::uint32_t id, Rows& rows, Set set) {
    const auto column = find(id);
    if (!column) return;
    values_.resize(rows.size());
    if (!read_planes(*column, values_)) {
      ok_ = false;
      return;
    }
    auto value = values_.begin();
    for (auto& row : rows) set(row, *value++);
  }

  template <typename Rows, typename Set>
  void optional_reals(std::uint32_t id, Rows& rows, Set set) {
    const auto column = find(id);
    if (!column) return;
    const std::string_view bits = column->substr(0, (rows.size() + 7) / 8);
    std::size_t there = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) there += has(bits, i) ? 1U : 0U;
    values_.resize(there);
    if (!read_planes(column->substr(bits.size()), values_)) {
      ok_ = false;
      return;
    }
    auto value = values_.begin();
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (has(bits, i)) set(rows[i], *value++);
  }

  template <typename Rows, typename Set>
  void presence(std::uint32_t id, Rows& rows, Set set) {
    const auto column = find(id);
    if (!column) return;
    if (column->size() != (rows.size() + 7) / 8) {
      ok_ = false;
      return;
    }
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (has(*column, i)) set(rows[i]);
  }

  [[nodiscard]] std::optional<std::string_view> find(std::uint32_t id) const noexcept;
  [[nodiscard]] bool ok() const noexcept { return ok_; }

 private:
  static bool has(std::string_view bits, std::size_t row) noexcept {
    if (row / 8 >= bits.size()) return false;
    const unsigned byte = static_cast<unsigned char>(bits[row / 8]);
    return ((byte >> (row % 8)) & 1U) != 0;
  }

  static constexpr std::size_t kMost = 64;
  std::array<std::optional<std::string_view>, kMost> columns_{};
  std::vector<double> values_;
  bool ok_ = true;
};

}  // namespace gradvane::exporters::recording
