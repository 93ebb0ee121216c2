#include "exporters/page/page.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "exporters/page/incident_words.hpp"
#include "exporters/page/page_files.hpp"
#include "exporters/page/page_number.hpp"
#include "exporters/page/state_sentence.hpp"
#include "exporters/page/tiles.hpp"
#include "exporters/text/human_text.hpp"
#include "exporters/text/text_escape.hpp"
#include "record/clocks.hpp"

namespace gradvane::exporters {

using record::Incident;
using record::RunState;

namespace {

constexpr std::size_t kIncidents = 10;

bool is_over(RunState state) { return state == RunState::finished || state == RunState::failed; }

/// It stands there while the script loads, too: the style sheet hides it for that time.
std::string_view words_on_the_script() {
  if (has_script()) {
    return "Charts, layers, parameters and host syncs need JavaScript: the page\xE2\x80\x99s "
           "script "
           "is off here, or it failed.";
  }
  return "This library was built without the page\xE2\x80\x99s script, which shows charts, layers, "
         "parameters and host syncs.";
}

std::string_view mark_of(std::string_view tone) {
  if (tone == "good") return "\xE2\x9C\x93";
  if (tone == "bad") return "\xE2\x9C\x95";
  return tone == "warn" ? "!" : "\xC2\xB7";
}

/// When the latest step ended: without the day if that is today, and how long ago while the run lasts.
std::string time_words(const Status& status, double time) {
  constexpr std::size_t kDay = 11;  // "2026-11-21 "
  const double now = record::unix_time();
  std::string words = human_time(time);
  if (words.starts_with(human_time(now).substr(0, kDay))) words.erase(0, kDay);
  const double age = now - time;
  if (!is_over(status.state) && status.recording.empty() && age >= 2 && age < 1e12) {
    words.append(", ").append(page_age(std::llround(age))).append(" ago");
  }
  return words;
}

void append_state(std::string& html, const Status& status, const LatestNumbers* latest,
                  const StateSentence& sentence) {
  html.append("<div class=\"state-line ").append(sentence.tone).append("\">");
  html.append("<span class=\"mark\" aria-hidden=\"true\">").append(mark_of(sentence.tone));
  html.append("</span><div><h1>").append(html_of(sentence.text)).append("</h1>");
  if (latest && latest->latest) {
    html.append("<p class=\"facts\">step ").append(human_count(latest->latest->run_step));
    html.append(" \xC2\xB7 last one ").append(time_words(status, latest->latest->time));
    html += "</p>";
  }
  html += "</div></div>\n";
}

void append_head(std::string& html, const Status& status, const LatestNumbers* latest) {
  const std::string run = status.run ? html_of(status.run->run) : "Gradvane";
  const StateSentence sentence = state_sentence(status, latest);
  html += "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  // When the run is over its process is about to go, and a reload would replace this page by an error.
  if (!is_over(status.state) && status.recording.empty())
    html += "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n";
  html.append("<title>").append(html_of(sentence.text)).append(" \xC2\xB7 ").append(run);
  html += "</title>\n<link rel=\"stylesheet\" href=\"style.css\">";
  html += "\n<link rel=\"icon\" href=\"icon.svg\">";
  if (has_script()) html += "\n<script src=\"page.js\" defer></script>";
  html += "</head>\n<body><div id=\"plain\">\n<header><div class=\"top-line\"><span class=\"run\">";
  html.append(run).append("</span>");
  if (status.run && status.run->world_size > 1) {
    html.append(" <span class=\"rank\">rank ").append(std::to_string(status.run->rank));
    html.append(" of ").append(human_count(status.run->world_size)).append("</span>");
  }
  html += "</div>\n";
  append_state(html, status, latest, sentence);
  if (!status.recording.empty()) {
    html.append("<p class=\"banner recording\">This is a recording: <code>");
    html.append(html_of(status.recording)).append("</code></p>\n");
  }
  html += has_script() ? "<p class=\"banner about-script may-come\">"
                       : "<p class=\"banner about-script\">";
  html.append(words_on_the_script()).append("</p>\n</header>\n");
}

void append_incident(std::string& html, const Incident& incident) {
  const std::string_view look = !is_open(incident)  ? "over"
                                : is_mild(incident) ? "open mild"
                                                    : "open";
  html.append("<li class=\"").append(look).append("\"><strong>");
  html.append(class_words(incident.kind)).append("</strong> <span class=\"when\">");
  html.append(is_open(incident) ? "open, " : "over, ").append(steps_words(incident));
  html.append("</span> <span class=\"evidence\">").append(html_of(incident.evidence));
  html += "</span></li>\n";
}

void append_incidents(std::string& html, const Status& status) {
  html += "<section><h2>Incidents</h2>\n";
  if (status.incidents.empty()) {
    html += "<p class=\"empty\">None since the start of the run.</p></section>\n";
    return;
  }
  const auto incidents = open_first(status.incidents);
  html += "<ul class=\"incidents\">\n";
  const std::size_t shown = std::min(incidents.size(), kIncidents);
  for (std::size_t i = 0; i < shown; ++i) append_incident(html, incidents[i]);
  html += "</ul>\n";
  if (incidents.size() > shown) {
    html.append("<p class=\"more\">").append(page_plural(status.incidents_total, "incident"));
    html += " in all: <a href=\"api/v1/status\">the newest hundred as JSON</a>.</p>\n";
  }
  html += "</section>\n";
}

void append_foot(std::string& html, const Status& status) {
  html += "<footer><p>Gradvane";
  if (status.run) html.append(" ").append(html_of(status.run->version));
  html +=
      " \xC2\xB7 <a href=\"metrics\">metrics</a> \xC2\xB7 <a href=\"api/v1/status\">status</a> "
      "\xC2\xB7 <a href=\"api/v1/params\">parameters</a> \xC2\xB7 "
      "<a href=\"api/v1/steps\">steps</a> \xC2\xB7 <a href=\"api/v1/syncs\">host syncs</a>"
      "</p></footer>\n</div><div id=\"app\"></div></body></html>\n";
}

}  // namespace

HttpResponse overview_page(const StatusBoard& board) {
  const auto status = board.status();
  // Of several optimizers this page shows the one that leads the run.
  const std::int32_t optimizer = status->lead.optimizer();
  const LatestNumbers* latest = status->optimizers.find(optimizer);
  std::string html;
  html.reserve(std::size_t{8} * 1024);
  append_head(html, *status, latest);
  html += "<main>\n";
  if (latest && latest->latest)
    append_tiles(html, *status, *latest, board.steps_of(optimizer, 0, kRateSteps).steps);
  append_incidents(html, *status);
  html += "</main>\n";
  append_foot(html, *status);
  return {.content_type = "text/html; charset=utf-8", .body = std::move(html)};
}

}  // namespace gradvane::exporters
