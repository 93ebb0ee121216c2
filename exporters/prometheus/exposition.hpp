#pragma once
// Metric families as text for Prometheus: pure functions, format 0.0.4 and OpenMetrics 1.0.
//
// Both formats carry the same series under the same names. Values read back as exactly the double they
// were. Empty families are left out. Label values that are not UTF-8 have the offending bytes replaced
// by U+FFFD, since one of them would make Prometheus refuse the whole scrape.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/exemplar.hpp"

namespace prometheus {
struct MetricFamily;
}

namespace gradvane::exporters {

enum class ExpositionFormat : std::uint8_t { text_0_0_4, openmetrics_1_0_0 };

/// Content-Type, with version and charset: Prometheus 3 refuses a target without.
[[nodiscard]] std::string_view content_type(ExpositionFormat format) noexcept;

/// Appends the exposition to `out`. OpenMetrics ends with `# EOF`, so it can be appended only once. Exemplars are
/// written in OpenMetrics only, since text 0.0.4 has none.
void write_exposition(std::string& out, const std::vector<prometheus::MetricFamily>& families,
                      ExpositionFormat format, std::span<const Exemplar> exemplars = {});

/// What to answer to an Accept header: the format with the higher q-value, OpenMetrics where they are
/// equal and it was asked for by name. A missing header, or one that names neither, gets text 0.0.4.
[[nodiscard]] ExpositionFormat negotiate(std::string_view accept) noexcept;

}  // namespace gradvane::exporters
