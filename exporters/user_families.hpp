#pragma once
// Metric families that are not ours: one malformed name makes Prometheus drop the whole target, so each
// is looked at before it is let in.
#include <prometheus/metric_family.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace gradvane::exporters {

/// Labels that every series is to carry, as name and value.
using FixedLabels = std::vector<std::pair<std::string, std::string>>;

/// Moves those of `theirs` into `families` that Prometheus will accept beside what is there: legal metric
/// and label names, no name that an earlier family already means in either format, no repeated label, no
/// series twice. Series that lack one of `fixed` get it. Returns how many families were left out.
std::size_t append_user_families(std::vector<prometheus::MetricFamily>& families,
                                 std::vector<prometheus::MetricFamily> theirs,
                                 const FixedLabels& fixed);

}  // namespace gradvane::exporters
