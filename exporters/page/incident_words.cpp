#include "exporters/page/incident_words.hpp"

#include <algorithm>
#include <iterator>

#include "exporters/page/page_number.hpp"
#include "exporters/text/human_text.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::exporters {

using record::Incident;
using record::IncidentClass;
using record::Site;

namespace {

std::string_view site_words(Site site) {
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

}  // namespace

std::string_view class_words(IncidentClass kind) { return info_of(kind).title; }

std::string_view kind_words(const std::optional<record::NonfiniteKind>& kind) {
  if (!kind) return "NaN or Inf";
  switch (*kind) {
    case record::NonfiniteKind::nan:
      return "NaN";
    case record::NonfiniteKind::pos_inf:
      return "+Inf";
    case record::NonfiniteKind::neg_inf:
      break;
  }
  return "\xE2\x88\x92Inf";
}

bool is_nonfinite(const Incident& incident) {
  return incident.kind <= IncidentClass::nonfinite_weight;
}

bool is_mild(const Incident& incident) {
  return info_of(incident.kind).gravity == record::Gravity::mild;
}

bool is_open(const Incident& incident) { return !incident.closed_at; }

std::string place_words(Site site, std::string_view param) {
  std::string words(site_words(site));
  if (!param.empty() && site != Site::loss) words.append(" of ").append(param);
  return words;
}

std::string since_words(const Incident& incident) {
  const std::string since = " since step " + human_count(incident.first_step);
  if (!is_nonfinite(incident)) {
    std::string words = std::string(class_words(incident.kind)) + since;
    if (!incident.group.empty()) words.append(" in ").append(incident.group);
    return words;
  }
  const auto& first = incident.first;
  return std::string(kind_words(first ? std::optional(first->kind) : std::nullopt)) + since +
         " in the " + place_words(first ? first->site : Site::grad, incident.param);
}

std::string steps_words(const Incident& incident) {
  if (incident.first_step == incident.last_step) {
    return "step " + human_count(incident.first_step);
  }
  return "steps " + human_count(incident.first_step) + " to " + human_count(incident.last_step) +
         ", " + page_plural(incident.steps, "bad one");
}

std::vector<Incident> open_first(const std::vector<Incident>& incidents) {
  std::vector<Incident> ordered;
  ordered.reserve(incidents.size());
  const auto is_over = [](const Incident& incident) { return !is_open(incident); };
  std::ranges::copy_if(incidents, std::back_inserter(ordered), is_open);
  std::ranges::copy_if(incidents, std::back_inserter(ordered), is_over);
  return ordered;
}

}  // namespace gradvane::exporters
