#include "exporters/page/tiles.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "exporters/page/page_number.hpp"
#include "exporters/text/human_text.hpp"

namespace gradvane::exporters {

using record::Site;

namespace {

void append_tile(std::string& html, std::string_view label, const std::string& value,
                 const std::string& note = {}, bool is_bad = false) {
  html.append("<div class=\"tile").append(is_bad ? " bad" : "").append("\"><dt>").append(label);
  html.append("</dt><dd>").append(value).append("</dd>");
  if (!note.empty()) html.append("<dd class=\"note\">").append(note).append("</dd>");
  html += "</div>\n";
}

void loss_tile(std::string& html, const LatestNumbers& row) {
  const auto& loss = row.latest->loss;
  const bool is_bad = loss && !std::isfinite(*loss);
  std::string note;
  if ((is_bad || !loss) && row.loss) {
    note = "last finite one " + page_number(row.loss->value) + ", step " +
           human_count(row.loss->run_step);
  }
  append_tile(html, "Loss", page_number(loss), note, is_bad);
}

void norm_tile(std::string& html, const record::StepRecord& latest) {
  const auto grad = index_of(Site::grad);
  if (latest.site_measured[grad].value_or(false) && record::any(latest.nonfinite[grad])) {
    return append_tile(html, "Gradient norm", "not finite",
                       page_number(latest.grad_norm) + " without NaN and Inf", true);
  }
  std::string note;
  if (latest.clip_coefficient && std::isfinite(*latest.clip_coefficient)) {
    note = *latest.clip_coefficient < 1 ? "clipped to " + page_number(latest.grad_norm_at_step)
                                        : "not clipped";
  }
  append_tile(html, "Gradient norm", page_number(latest.grad_norm), note);
}

void rate_tile(std::string& html, const record::StepRecord& latest) {
  const auto count = std::min(latest.lr_count, record::kMaxLearningRates);
  std::vector<double> rates(latest.lr.begin(), latest.lr.begin() + std::max(count, 0));
  std::erase_if(rates, [](double rate) { return !std::isfinite(rate); });
  std::string value = page_number(std::nullopt);
  if (!rates.empty()) {
    const auto [low, high] = std::ranges::minmax(rates);
    value = low == high ? page_number(low) : page_number(low) + " to " + page_number(high);
  }
  append_tile(html, "Learning rate", value, count > 1 ? page_plural(count, "parameter group") : "");
}

void speed_tile(std::string& html, const Status& status,
                const std::vector<record::StepRecord>& steps) {
  std::optional<double> speed;
  if (steps.size() > 1) {
    const double time = steps.back().time - steps.front().time;
    const auto count = static_cast<double>(steps.back().step - steps.front().step);
    if (time > 0) speed = count / time;
  }
  const std::string note =
      status.skipped_steps > 0 ? page_plural(status.skipped_steps, "step") + " skipped" : "";
  append_tile(html, "Steps/s", page_number(speed), note);
}

void nonfinite_tile(std::string& html, const Status& status, const record::StepRecord& latest) {
  if (!status.first_bad) {
    const bool was_read = std::ranges::any_of(
        latest.site_measured, [](const auto& measured) { return measured.value_or(false); });
    return append_tile(html, "NaN and infinity", was_read ? "none" : page_number(std::nullopt),
                       was_read ? "since the start of the run" : "not measured");
  }
  // Totals are of the run: its newest record has them, whichever optimizer stepped.
  const record::StepRecord& newest = *status.latest;
  std::int64_t elements = 0;
  for (const auto& counts : newest.nonfinite_total) {
    for (const std::int64_t count : counts) elements += count;
  }
  append_tile(html, "NaN and infinity",
              page_plural(std::ranges::max(newest.nonfinite_steps_total), "step"),
              page_plural(elements, "element") + ", first in step " +
                  human_count(status.first_bad->what.run_step),
              true);
}

}  // namespace

void append_tiles(std::string& html, const Status& status, const LatestNumbers& row,
                  const std::vector<record::StepRecord>& steps) {
  html += "<dl class=\"tiles\">\n";
  loss_tile(html, row);
  norm_tile(html, *row.latest);
  rate_tile(html, *row.latest);
  speed_tile(html, status, steps);
  nonfinite_tile(html, status, *row.latest);
  const auto& update = row.update_ratio;
  append_tile(html, "Update / weight",
              page_number(update ? std::optional(update->value) : std::nullopt),
              update ? "estimate, step " + human_count(update->run_step) : "");
  html += "</dl>\n";
}

}  // namespace gradvane::exporters
