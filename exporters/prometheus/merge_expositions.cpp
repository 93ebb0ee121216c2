#include "exporters/prometheus/merge_expositions.hpp"

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

namespace gradvane::exporters {
namespace {

constexpr std::string_view kEnd = "# EOF";

struct Family {
  std::string_view type;                 ///< the whole line; empty: it has none
  std::string_view header;               ///< its lines that are comments
  std::vector<std::string_view> series;  ///< of each part, whole lines
};

/// Takes the first line, with its line feed, off `text`, which ends with one.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n') + 1);
  text.remove_prefix(line.size());
  return line;
}

std::string_view word(std::string_view text) { return text.substr(0, text.find_first_of(" \n")); }

/// The family that a line of HELP, TYPE or UNIT is about; absent for any other line.
std::optional<std::string_view> subject_of(std::string_view line) {
  for (const std::string_view kind : {"# HELP ", "# TYPE ", "# UNIT "})
    if (line.starts_with(kind)) return word(line.substr(kind.size()));
  return std::nullopt;
}

class Merge {
 public:
  /// A line without its line feed was cut short, and is left out.
  void add(std::string_view text) {
    text = text.substr(0, text.rfind('\n') + 1);
    while (!text.empty()) {
      std::string_view line = text.substr(0, text.find('\n'));
      if (line == kEnd) {
        has_end_ = true;
        return;
      }
      const auto name = subject_of(line);
      if (!name) {  // a comment, or a series that no family announces: it belongs to no one
        (void)take_line(text);
        continue;
      }
      add_family(*name, text);
    }
  }

  [[nodiscard]] std::string text(std::size_t size) const {
    std::string merged;
    merged.reserve(size);
    for (const Family& family : families_) {
      merged.append(family.header);
      for (const std::string_view series : family.series) merged.append(series);
    }
    if (has_end_) merged.append(kEnd).append("\n");
    return merged;
  }

 private:
  /// Takes the lines of one family off `text`.
  void add_family(std::string_view name, std::string_view& text) {
    const std::string_view begin = text;
    std::string_view type;
    while (subject_of(text) == name) {
      const std::string_view line = take_line(text);
      if (line.starts_with("# TYPE ")) type = line;
    }
    const std::string_view header = begin.substr(0, begin.size() - text.size());
    const std::string_view rest = text;
    while (!text.empty() && text.front() != '#') (void)take_line(text);
    const std::string_view series = rest.substr(0, rest.size() - text.size());
    if (series.empty()) return;
    const auto [place, is_new] = places_.try_emplace(name, families_.size());
    if (is_new) families_.push_back({.type = type, .header = header, .series = {}});
    Family& family = families_[place->second];
    if (family.type == type) family.series.push_back(series);
  }

  std::vector<Family> families_;
  std::unordered_map<std::string_view, std::size_t> places_;  ///< in families_, by name
  bool has_end_ = false;
};

}  // namespace

std::string merge_expositions(std::span<const std::string_view> parts) {
  Merge merge;
  std::size_t size = 0;
  for (const std::string_view part : parts) {
    merge.add(part);
    size += part.size();
  }
  return merge.text(size);
}

}  // namespace gradvane::exporters
