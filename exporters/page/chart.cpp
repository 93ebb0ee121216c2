#include "exporters/page/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "exporters/text/human_text.hpp"
#include "exporters/text/text_escape.hpp"

namespace gradvane::exporters {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 130;
constexpr double kMargin = 6;  // so that the line's ends and the marks are not cut

struct Scale {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] bool is_empty() const { return low > high; }
  /// Where `value` lies, from 0 to 1; halves first, so that the range of doubles does not overflow.
  [[nodiscard]] double at(double value) const {
    return high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
  }
};

std::string coordinate(double value) {
  std::array<char, 24> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.1f", value);
  return {text.data(), static_cast<std::size_t>(std::max(length, 0))};
}

std::string x_of(const Scale& steps, std::int64_t run_step) {
  const double at = steps.at(static_cast<double>(run_step));
  return coordinate(kMargin + at * (kWidth - 2 * kMargin));
}

std::string y_of(const Scale& values, double value) {
  return coordinate(kHeight - kMargin - values.at(value) * (kHeight - 2 * kMargin));
}

bool is_drawable(const ChartPoint& point) { return point.value && std::isfinite(*point.value); }

bool is_marked(const ChartPoint& point) {
  return point.is_bad || (point.value && !is_drawable(point));
}

void append_lines(std::string& html, const std::vector<ChartPoint>& points, const Scale& steps,
                  const Scale& values) {
  bool is_open = false;
  for (const ChartPoint& point : points) {
    if (is_drawable(point)) {
      html += is_open ? " L" : "<path class=\"line\" d=\"M";
      html.append(x_of(steps, point.run_step)).append(" ").append(y_of(values, *point.value));
      is_open = true;
    } else if (is_open && point.value) {
      html += "\"/>";
      is_open = false;
    }
  }
  if (is_open) html += "\"/>";
}

void append_marks(std::string& html, const std::vector<ChartPoint>& points, const Scale& steps) {
  std::string last;  // marks closer than a pixel would draw one over the other
  for (const ChartPoint& point : points) {
    if (!is_marked(point)) continue;
    std::string x = x_of(steps, point.run_step);
    if (x == last) continue;
    html.append("<line class=\"bad\" x1=\"").append(x).append("\" x2=\"").append(x);
    html.append("\" y1=\"0\" y2=\"").append(coordinate(kHeight)).append("\"/>");
    last = std::move(x);
  }
}

}  // namespace

void append_chart(std::string& html, std::string_view title,
                  const std::vector<ChartPoint>& points) {
  Scale steps;
  Scale values;
  std::int64_t bad = 0;
  for (const ChartPoint& point : points) {
    steps.cover(static_cast<double>(point.run_step));
    if (is_drawable(point)) values.cover(*point.value);
    if (is_marked(point)) ++bad;
  }
  html += "<figure><figcaption>";
  append_html(html, title);
  if (bad > 0) {
    html.append(" <span class=\"bad\">").append(human_count(bad));
    html += bad == 1 ? " step not finite</span>" : " steps not finite</span>";
  }
  html += "</figcaption>";
  if (values.is_empty() && bad == 0) {
    html += "<p class=\"empty\">Not measured yet.</p></figure>\n";
    return;
  }
  html.append("<div class=\"plot\"><div class=\"scale\"><span>");
  html.append(values.is_empty() ? "" : human_number(values.high)).append("</span><span>");
  html.append(values.is_empty() ? "" : human_number(values.low)).append("</span></div>");
  html.append("<svg viewBox=\"0 0 ").append(coordinate(kWidth)).append(" ");
  html.append(coordinate(kHeight)).append("\" preserveAspectRatio=\"none\" role=\"img\"");
  html += " aria-label=\"";
  append_html(html, title);
  if (!values.is_empty()) {
    html.append(" from ").append(human_number(values.low)).append(" to ");
    html.append(human_number(values.high));
  }
  html += "\">";
  append_marks(html, points, steps);
  append_lines(html, points, steps, values);
  html += "</svg></div><div class=\"steps\"><span>step ";
  html.append(human_count(points.front().run_step)).append("</span><span>");
  html.append(human_count(points.back().run_step)).append("</span></div></figure>\n");
}

}  // namespace gradvane::exporters
