#include "exporters/page/page_syncs.hpp"

#include "exporters/json/sync_json.hpp"
#include "exporters/page/tile.hpp"
#include "exporters/text/human_text.hpp"
#include "exporters/text/sync_words.hpp"
#include "exporters/text/text_escape.hpp"

namespace gradvane::exporters {

using record::SyncOrigin;
using record::SyncSite;
using record::SyncSummary;

namespace {

constexpr std::size_t kTopSites = 10;

void cell(std::string& html, const std::string& value, std::string_view look = "n") {
  html.append("<td class=\"").append(look).append("\">").append(value).append("</td>");
}

void row(std::string& html, const SyncSummary& syncs, const SyncSite& site) {
  html.append("<tr><th scope=\"row\"><code>").append(html_of(site.location));
  html.append("</code></th><td>");
  if (!site.function.empty()) {
    html.append("<code>").append(html_of(site.function)).append("</code>");
  }
  html += "</td>";
  std::string kind(words_of(site.kind));
  if (site.origin != SyncOrigin::training) kind.append(", by ").append(words_of(site.origin));
  cell(html, kind, "remark");
  cell(html, human_number(calls_per_step(syncs, site)));
  cell(html, human_count(site.total.calls));
  cell(html, human_duration(site.total.seconds));
  cell(html, human_percent(share_of_time(syncs, site)));
  html += "</tr>\n";
}

void table(std::string& html, const SyncSummary& syncs) {
  html +=
      "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">place</th>"
      "<th scope=\"col\">function</th><th scope=\"col\">waited for</th>"
      "<th scope=\"col\" class=\"n\">calls per step</th><th scope=\"col\" class=\"n\">calls</th>"
      "<th scope=\"col\" class=\"n\">time blocked</th>"
      "<th scope=\"col\" class=\"n\">of the time counted</th></tr></thead><tbody>\n";
  for (const SyncSite* site : choose_sites(syncs, {.origin = {}, .limit = kTopSites})) {
    row(html, syncs, *site);
  }
  html.append("</tbody></table></div>\n<p class=\"more\">");
  html.append(human_count(std::ssize(syncs.sites)));
  html.append(syncs.sites.size() == 1 ? " place" : " places");
  html += " in all: <a href=\"/api/v1/syncs\">the whole list as JSON</a>.</p>\n";
}

}  // namespace

void append_sync_tile(std::string& html, const Status& status) {
  const SyncSummary& syncs = *status.syncs;
  if (!status.latest || !status.latest->syncs) {
    if (syncs.is_counting()) {
      return append_tile(html, "Host syncs", human_number(std::nullopt),
                         "the latest step was not counted from end to end");
    }
    return append_tile(html, "Host syncs", "not counted", html_of(words_of(syncs.reason)));
  }
  const auto calls = status.latest->syncs->count(SyncOrigin::training);
  std::string note = "of the training, in the latest step";
  if (syncs.budget) note += "; " + human_count(*syncs.budget) + " allowed";
  const auto own = status.latest->syncs->count(SyncOrigin::gradvane);
  if (own > 0) note += "; " + human_count(own) + " of Gradvane\xE2\x80\x99s own";
  const bool is_over = syncs.budget && calls > *syncs.budget;
  append_tile(html, "Host syncs", human_count(calls), note, is_over ? "bad" : "");
}

void append_sync_section(std::string& html, const SyncSummary& syncs) {
  html += "<section><h2>What the CPU waited for</h2>\n";
  if (!syncs.is_counting()) {
    html.append("<p class=\"empty\">").append(html_of(sentence_of(syncs))).append("</p>\n");
  }
  if (syncs.has_counted()) {
    if (syncs.sites.empty()) {
      html += "<p class=\"empty\">Nothing on the GPU, so far.</p>\n";
    } else {
      table(html, syncs);
    }
    const std::string coverage = coverage_of(syncs);
    if (!coverage.empty()) html.append("<p class=\"more\">").append(coverage).append("</p>\n");
  }
  html += "</section>\n";
}

}  // namespace gradvane::exporters
