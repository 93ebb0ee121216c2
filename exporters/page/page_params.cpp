#include "exporters/page/page_params.hpp"

#include <algorithm>
#include <limits>

#include "exporters/board/param_order.hpp"
#include "exporters/text/human_text.hpp"
#include "exporters/text/text_escape.hpp"
#include "record/names.hpp"
#include "record/numbers.hpp"

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

/// Norms are over finite elements: a tensor that has none is said to be NaN, not to be unmeasured.
std::string text_of(const record::TensorNumber& number, const ParamRow& row) {
  const auto value = value_of(number, row);
  if (number.unit == record::Unit::share) return human_percent(value);
  if (number.unit == record::Unit::ratio) return human_number(value);
  const auto& tensor = number.site == record::Site::grad ? row.grad : row.weight;
  const bool is_ruined = tensor && !record::has_finite(tensor->value) && !value;
  return human_number(is_ruined ? std::numeric_limits<double>::quiet_NaN() : value);
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
      "<th scope=\"col\">state</th><th scope=\"col\" class=\"n\">elements</th>";
  for (const record::TensorNumber& number : record::kTensorNumbers)
    html.append("<th scope=\"col\" class=\"n\">").append(number.label).append("</th>");
  html += "<th scope=\"col\">not finite</th></tr></thead><tbody>\n";
  for (std::size_t i = 0; i < std::min(rows.size(), kWorstParams); ++i) {
    const record::ParamInfo& info = table.model->params[rows[i]];
    const ParamRow& row = table.rows[rows[i]];
    html.append("<tr><th scope=\"row\"><code>").append(html_of(info.name));
    html.append("</code></th><td><span class=\"state ").append(name_of(row.state)).append("\">");
    html.append(name_of(row.state)).append("</span></td><td class=\"n\">");
    html.append(human_count(info.numel)).append("</td>");
    for (const record::TensorNumber& number : record::kTensorNumbers)
      html.append("<td class=\"n\">").append(text_of(number, row)).append("</td>");
    html.append("<td class=\"remark\">").append(remark_of(row)).append("</td></tr>\n");
  }
  html.append("</tbody></table></div>\n<p class=\"more\">").append(human_count(std::ssize(rows)));
  html +=
      " parameters in all: <a href=\"/api/v1/params?sort=worst\">the whole table as JSON</a>.</p>"
      "</section>\n";
}

}  // namespace gradvane::exporters
