#include "exporters/page/page_params.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "exporters/board/param_order.hpp"
#include "exporters/finite_part.hpp"
#include "exporters/text/human_text.hpp"
#include "exporters/text/text_escape.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {
namespace {

constexpr std::size_t kWorstParams = 20;

std::string remark_of(const ParamRow& row) {
  if (!row.first_bad) return {};
  std::string remark = human_count(row.nonfinite_steps) +
                       (row.nonfinite_steps == 1 ? " bad step, first " : " bad steps, first ") +
                       human_count(row.first_bad->run_step);
  if (row.first_bad->element >= 0) remark += ", element " + human_count(row.first_bad->element);
  return remark;
}

/// Numbers are those of the finite elements; where there is none, they would read as zero.
double unless_ruined(const record::TensorNumbers& numbers, double value) {
  return has_finite(numbers) ? value : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void append_params_section(std::string& html, const ParamTable& table) {
  const auto rows = choose_params(table, {.key = "worst"});
  html += "<section><h2>Parameters, worst first</h2>\n";
  if (rows.empty()) {
    html += "<p class=\"empty\">No parameters are being watched.</p></section>\n";
    return;
  }
  html +=
      "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">parameter</th>"
      "<th scope=\"col\">state</th><th scope=\"col\" class=\"n\">elements</th>"
      "<th scope=\"col\" class=\"n\">grad norm</th><th scope=\"col\" class=\"n\">grad max</th>"
      "<th scope=\"col\" class=\"n\">zeros</th><th scope=\"col\" class=\"n\">weight norm</th>"
      "<th scope=\"col\" class=\"n\">update / weight</th><th scope=\"col\">not "
      "finite</th></tr></thead>"
      "<tbody>\n";
  for (std::size_t i = 0; i < std::min(rows.size(), kWorstParams); ++i) {
    const record::ParamInfo& info = table.model->params[rows[i]];
    const ParamRow& row = table.rows[rows[i]];
    std::optional<double> norm, largest, zeros, weight, update;
    if (row.grad) {
      const record::TensorNumbers& grad = row.grad->value;
      norm = unless_ruined(grad, grad.norm);
      largest = unless_ruined(grad, grad.abs_max);
      zeros = zero_ratio_of(grad);
    }
    if (row.weight) weight = unless_ruined(row.weight->value, row.weight->value.norm);
    if (row.update_ratio) update = row.update_ratio->value;
    html.append("<tr><th scope=\"row\"><code>").append(html_of(info.name));
    html.append("</code></th><td><span class=\"state ").append(name_of(row.state)).append("\">");
    html.append(name_of(row.state)).append("</span></td><td class=\"n\">");
    html.append(human_count(info.numel)).append("</td><td class=\"n\">");
    html.append(human_number(norm)).append("</td><td class=\"n\">").append(human_number(largest));
    html.append("</td><td class=\"n\">")
        .append(human_percent(zeros))
        .append("</td><td class=\"n\">");
    html.append(human_number(weight)).append("</td><td class=\"n\">").append(human_number(update));
    html.append("</td><td class=\"remark\">").append(remark_of(row)).append("</td></tr>\n");
  }
  html.append("</tbody></table></div>\n<p class=\"more\">").append(human_count(std::ssize(rows)));
  html +=
      " parameters in all: <a href=\"/api/v1/params?sort=worst\">the whole table as JSON</a>.</p>"
      "</section>\n";
}

}  // namespace gradvane::exporters
