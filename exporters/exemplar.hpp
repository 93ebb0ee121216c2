#pragma once
// The latest event behind a counter, which OpenMetrics can show next to the counter's value.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradvane::exporters {

struct Exemplar {
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// OpenMetrics allows so many characters of names and values together.
  static constexpr std::size_t kMostCharacters = 128;

  std::string_view family;  ///< name of the counter, as the catalogue has it
  Labels series;            ///< labels that single out one series of the family
  Labels labels;            ///< of the event
  double value = 1;         ///< what the event added
  double time = 0;          ///< seconds since the epoch
};

/// The labels in their order, without empty values and without those that do not fit. Bytes are counted, of which
/// there are at least as many as characters.
[[nodiscard]] inline Exemplar::Labels fitting_labels(Exemplar::Labels labels) {
  std::size_t used = 0;
  std::erase_if(labels, [&](const auto& label) {
    const std::size_t size = label.first.size() + label.second.size();
    const bool fits = !label.second.empty() && used + size <= Exemplar::kMostCharacters;
    if (fits) used += size;
    return !fits;
  });
  return labels;
}

}  // namespace gradvane::exporters
