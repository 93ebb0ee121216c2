#pragma once
// A small line chart as SVG, drawn on the server.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradvane::exporters {

struct ChartPoint {
  std::int64_t run_step = 0;
  std::optional<double> value;  ///< absent: not measured
  bool is_bad = false;          ///< a mark stands here, although the value is finite
};

/// Appends a figure. The line breaks where a value is not finite, and a mark stands there instead: a line
/// drawn across would hide the one thing to be seen. Colours come from the style sheet.
void append_chart(std::string& html, std::string_view title, const std::vector<ChartPoint>& points);

}  // namespace gradvane::exporters
