#include "exporters/page/page.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "exporters/page/chart.hpp"
#include "exporters/page/page_files.hpp"
#include "exporters/page/page_params.hpp"
#include "exporters/page/page_syncs.hpp"
#include "exporters/page/tile.hpp"
#include "exporters/text/human_text.hpp"
#include "exporters/text/text_escape.hpp"
#include "record/clocks.hpp"
#include "record/incident_classes.hpp"
#include "record/names.hpp"

namespace gradvane::exporters {

using record::RunState;
using record::Site;

namespace {

constexpr std::size_t kChartSteps = 600;
constexpr std::size_t kIncidents = 10;

std::string_view words_of(Site site) {
  switch (site) {
    case Site::loss:
      return "loss";
    case Site::grad:
      return "gradient";
    case Site::weight:
      break;
  }
  return "weights";
}

std::string_view words_of(record::NonfiniteKind kind) {
  switch (kind) {
    case record::NonfiniteKind::nan:
      return "NaN";
    case record::NonfiniteKind::pos_inf:
      return "+Inf";
    case record::NonfiniteKind::neg_inf:
      break;
  }
  return "\xE2\x88\x92Inf";
}

std::string_view heading_of(RunState state) {
  switch (state) {
    case RunState::starting:
      return "Starting";
    case RunState::running:
      return "Running";
    case RunState::stalled:
      return "Stalled";
    case RunState::finished:
      return "Finished";
    case RunState::failed:
      break;
  }
  return "Failed";
}

bool is_over(RunState state) { return state == RunState::finished || state == RunState::failed; }

/// What the state means, in one sentence.
std::string sentence_of(const Status& status) {
  std::string sentence;
  switch (status.state) {
    case RunState::starting:
      sentence = "No step has been seen yet.";
      break;
    case RunState::running:
      sentence = status.recording.empty() ? "Training." : "It was training at the end of the file.";
      break;
    case RunState::stalled:
      sentence = "No step has ended for a while.";
      break;
    case RunState::finished:
      sentence = "The run ended as it should.";
      break;
    case RunState::failed:
      sentence = "The run ended with an error.";
      break;
  }
  if (!status.reason.empty()) sentence.append(" Reason: ").append(status.reason).append(".");
  if (status.latest) {
    sentence.append(" Last step ").append(human_time(status.latest->time));
    const double age = record::unix_time() - status.latest->time;
    if (!is_over(status.state) && status.recording.empty() && age >= 0) {
      sentence.append(", ").append(human_duration(age)).append(" ago");
    }
    sentence += '.';
  }
  return sentence;
}

std::optional<double> steps_per_second(const std::vector<record::StepRecord>& steps) {
  const std::size_t count = std::min<std::size_t>(steps.size(), 100);
  if (count < 2) return std::nullopt;
  const record::StepRecord& first = steps[steps.size() - count];
  const double time = steps.back().time - first.time;
  if (!(time > 0)) return std::nullopt;
  return static_cast<double>(steps.back().run_step - first.run_step) / time;
}

std::string rates_of(const record::StepRecord& record) {
  if (record.lr_count <= 0) return human_number(std::nullopt);
  const auto end = record.lr.begin() + std::min(record.lr_count, record::kMaxLearningRates);
  const auto [low, high] = std::minmax_element(record.lr.begin(), end);
  if (*low == *high) return human_number(*low);
  return human_number(*low) + " to " + human_number(*high);
}

void nonfinite_tile(std::string& html, const Status& status) {
  const record::StepRecord& latest = *status.latest;
  if (status.first_bad) {
    const BadElement& what = status.first_bad->what;
    std::int64_t steps = 0;
    std::int64_t elements = 0;
    for (std::size_t site = 0; site < record::kSites; ++site) {
      steps = std::max(steps, latest.nonfinite_steps_total[site]);
      for (const std::int64_t count : latest.nonfinite_total[site]) elements += count;
    }
    std::string note = "first at step " + human_count(what.run_step) + ": ";
    if (what.kind) note.append(words_of(*what.kind)).append(" in the ");
    note.append(words_of(what.site));
    if (!status.first_bad->param.empty()) {
      note.append(what.site == Site::loss ? " " : " of ");
      note.append("<code>").append(html_of(status.first_bad->param)).append("</code>");
    }
    if (what.element >= 0) note.append(", element ").append(human_count(what.element));
    append_tile(html, "NaN and infinity",
                human_count(steps) + (steps == 1 ? " step, " : " steps, ") + human_count(elements) +
                    (elements == 1 ? " element" : " elements"),
                note, "bad wide");
    return;
  }
  const bool is_measured = std::ranges::any_of(
      latest.site_measured, [](const auto& measured) { return measured.value_or(false); });
  append_tile(html, "NaN and infinity", is_measured ? "none" : human_number(std::nullopt),
              is_measured ? "since the start of the run" : "not measured");
}

void loss_tile(std::string& html, const LatestNumbers& row) {
  const auto& loss = row.latest->loss;
  const bool is_bad = loss && !std::isfinite(*loss);
  std::string note;
  if ((is_bad || !loss) && row.loss) {
    note = "last finite one " + human_number(row.loss->value) + " at step " +
           human_count(row.loss->run_step);
  }
  append_tile(html, "Loss", human_number(loss), note, is_bad ? "bad" : "");
}

void memory_tile(std::string& html, const Status& status) {
  const auto& resident = status.process_resident_bytes;
  const auto& device = status.device_allocated_bytes;
  if (!resident && !device) return;
  const auto bytes = [](const auto& dated) {
    return human_bytes(static_cast<double>(dated.value));
  };
  if (!device) return append_tile(html, "Memory", bytes(*resident), "resident");
  append_tile(html, "Device memory", bytes(*device),
              resident ? bytes(*resident) + " resident" : "");
}

void tiles(std::string& html, const Status& status, const LatestNumbers& row,
           const std::vector<record::StepRecord>& steps) {
  const record::StepRecord& latest = *row.latest;
  html += "<dl class=\"tiles\">\n";
  std::string note = human_number(steps_per_second(steps)) + " steps/s";
  if (status.skipped_steps > 0) note += ", " + human_count(status.skipped_steps) + " skipped";
  append_tile(html, "Step", human_count(latest.run_step), note);
  loss_tile(html, row);

  note.clear();
  if (latest.clip_coefficient && *latest.clip_coefficient < 1) {
    note = "clipped to " + human_number(latest.grad_norm_at_step);
  } else if (latest.clip_coefficient) {
    note = "not clipped";
  }
  append_tile(html, "Gradient norm", human_number(latest.grad_norm), note);
  nonfinite_tile(html, status);
  append_tile(html, "Learning rate", rates_of(latest),
              latest.lr_count > 1 ? human_count(latest.lr_count) + " parameter groups" : "");
  append_tile(html, "Update / weight",
              row.update_ratio ? human_number(row.update_ratio->value) : human_number(std::nullopt),
              row.update_ratio ? "estimate, step " + human_count(row.update_ratio->run_step) : "");

  std::optional<double> share;
  if (status.timed_seconds > 0) share = status.agent_seconds / status.timed_seconds;
  note = "of step time";
  if (status.records_dropped > 0) {
    note += "; " + human_count(status.records_dropped) + " records dropped";
  }
  append_tile(html, "Cost of the agent", human_percent(share), note);
  memory_tile(html, status);
  append_sync_tile(html, status);
  html += "</dl>\n";
}

/// Whose steps the charts show; empty where there is no choice.
std::string chart_note(const Status& status) {
  const auto& optimizers = status.model->optimizers;
  const auto leading = static_cast<std::size_t>(status.lead.optimizer());
  if (optimizers.size() < 2 || leading >= optimizers.size()) return {};
  return ", optimizer " + std::to_string(leading) + " (" + optimizers[leading] + ")";
}

void charts(std::string& html, const std::vector<record::StepRecord>& steps,
            const std::string& note) {
  std::vector<ChartPoint> loss;
  std::vector<ChartPoint> norm;
  for (const record::StepRecord& record : steps) {
    loss.push_back({record.run_step, record.loss});
    const auto& bad = record.nonfinite[index_of(Site::grad)];
    const bool is_bad = std::ranges::any_of(bad, [](std::int64_t count) { return count > 0; });
    norm.push_back({record.run_step, record.grad_norm, is_bad});
  }
  html += "<section class=\"charts\" aria-label=\"Lately\">\n";
  append_chart(html, "Loss" + note, loss);
  append_chart(html, "Gradient norm" + note, norm);
  html += "</section>\n";
}

void incidents(std::string& html, const Status& status) {
  html += "<section><h2>Incidents</h2>\n";
  if (status.incidents.empty()) {
    html += "<p class=\"empty\">None.</p></section>\n";
    return;
  }
  html += "<ul class=\"incidents\">\n";
  for (std::size_t i = 0; i < std::min(status.incidents.size(), kIncidents); ++i) {
    const record::Incident& incident = status.incidents[i];
    html.append("<li><strong>").append(info_of(incident.kind).title).append("</strong> ");
    html.append(incident.closed_at ? "(over)" : "(open)").append(", step ");
    html.append(human_count(incident.first_step));
    if (incident.last_step > incident.first_step) {
      html.append(" to ").append(human_count(incident.last_step));
    }
    html.append(", ").append(human_time(incident.opened_at)).append("<br>");
    html.append(html_of(incident.evidence)).append("</li>\n");
  }
  html.append("</ul>\n<p class=\"more\">").append(human_count(status.incidents_total));
  html += " since the start of the run.</p></section>\n";
}

void head(std::string& html, const Status& status) {
  const std::string run = status.run ? html_of(status.run->run) : "no run";
  html += "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  // When the run is over its process is about to go, and a reload would replace this page by an error.
  if (!is_over(status.state) && status.recording.empty())
    html += "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n";
  html.append("<title>").append(run).append(": ").append(heading_of(status.state));
  html += " \xC2\xB7 Gradvane</title>\n<link rel=\"stylesheet\" href=\"/style.css\">";
  html += "\n<link rel=\"icon\" href=\"/icon.svg\">";
  if (has_script()) html += "\n<script src=\"/page.js\" defer></script>";
  html += "</head>\n<body><div id=\"plain\">\n";
  html.append("<header><h1>").append(run).append(" <span class=\"badge ");
  html.append(name_of(status.state)).append("\">").append(heading_of(status.state));
  html.append("</span></h1>\n<p>").append(html_of(sentence_of(status))).append("</p>");
  if (!status.recording.empty())
    html.append("<p>This is a recording: ").append(html_of(status.recording)).append(".</p>");
  html += "</header>\n";
}

void foot(std::string& html, const Status& status) {
  html += "<footer><p>";
  if (status.run) {
    html.append("Gradvane ").append(html_of(status.run->version)).append(" \xC2\xB7 rank ");
    html.append(std::to_string(status.run->rank)).append(" of ");
    html.append(std::to_string(status.run->world_size)).append(" \xC2\xB7 ");
    html.append(html_of(status.run->host)).append(", process ");
    html.append(std::to_string(status.run->pid)).append(" \xC2\xB7 started ");
    html.append(human_time(status.run->start_time)).append(" \xC2\xB7 ");
  }
  html +=
      "<a href=\"/metrics\">metrics</a> \xC2\xB7 <a href=\"/api/v1/status\">status</a> \xC2\xB7 "
      "<a href=\"/api/v1/params\">parameters</a> \xC2\xB7 <a href=\"/api/v1/steps\">steps</a> "
      "\xC2\xB7 <a href=\"/api/v1/syncs\">host syncs</a>"
      "</p></footer>\n</div><div id=\"app\"></div></body></html>\n";
}

}  // namespace

HttpResponse overview_page(const StatusBoard& board) {
  const auto status = board.status();
  std::string html;
  html.reserve(64 * 1024);
  head(html, *status);
  html += "<main>\n";
  // Of several optimizers this page shows one: their losses on one line would be a zigzag.
  if (const LatestNumbers* row = status->optimizers.find(status->lead.optimizer())) {
    const auto steps = board.steps_of(status->lead.optimizer(), 0, kChartSteps).steps;
    tiles(html, *status, *row, steps);
    charts(html, steps, chart_note(*status));
  }
  incidents(html, *status);
  append_sync_section(html, *status->syncs);
  append_params_section(html, *board.params());
  html += "</main>\n";
  foot(html, *status);
  return {.content_type = "text/html; charset=utf-8", .body = std::move(html)};
}

}  // namespace gradvane::exporters
