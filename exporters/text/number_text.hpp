#pragma once
// Numbers as Prometheus reads them.
#include <string>

namespace gradvane::exporters {

/// The shortest text that reads back as exactly this double; NaN, +Inf and -Inf by these names. Whole
/// numbers below 1e15 are written without an exponent.
void append_number(std::string& out, double value);

/// For the labels `le` and `quantile`, which are compared as text: the canonical form of OpenMetrics,
/// with a decimal point or an exponent always (1.0, 0.001, 1e-05, 1e+06), in both formats.
void append_canonical_number(std::string& out, double value);

}  // namespace gradvane::exporters
