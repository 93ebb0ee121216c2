#pragma once
// Several expositions as one, as Prometheus wants it: each family once, with the series of all of them.
#include <span>
#include <string>
#include <string_view>

namespace gradvane::exporters {

/// Merges expositions of one format, text 0.0.4 or OpenMetrics, without reading the series. Families come in the order
/// in which they first appear, and their series in the order of `parts`. HELP, TYPE and UNIT are those of the first
/// part that has the family; a part that has it with another TYPE loses that family. `# EOF` ends the result if any
/// part has it. The parts must not have a series in common: here each has its own label `rank`.
/// Throws std::bad_alloc only.
[[nodiscard]] std::string merge_expositions(std::span<const std::string_view> parts);

}  // namespace gradvane::exporters
