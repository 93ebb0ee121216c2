#include "agent/worker/incident_lines.hpp"

#include <string_view>
#include <utility>

#include "record/names.hpp"

namespace gradvane::agent {
namespace {

std::string name_of_it(const record::Incident& incident) {
  return std::string(name_of(incident.kind)) + " of step " + std::to_string(incident.first_step);
}

std::string count_of(const record::Incident& incident) {
  if (incident.steps <= 1) return {};
  return ": " + std::to_string(incident.steps) + " bad steps, the last one " +
         std::to_string(incident.last_step);
}

}  // namespace

std::optional<std::string> IncidentLines::next(const record::Incident& incident) {
  const bool is_new = !told_.contains(incident.id);
  if (is_new && told_.size() >= kMostKnown) told_.erase(told_.begin());
  Told& told = told_[incident.id];
  if (incident.closed_at) {
    told.is_open = false;
    return "cleared: " + name_of_it(incident) + count_of(incident);
  }
  const bool was_open = std::exchange(told.is_open, true);
  const std::string before = std::exchange(told.evidence, incident.evidence);
  if (is_new) return incident.evidence;
  if (!was_open)
    return "back at step " + std::to_string(incident.last_step) + ": " + name_of_it(incident) +
           ", " + std::to_string(incident.steps) + " bad steps by now";
  std::string_view rest = incident.evidence;
  if (rest.starts_with(before)) rest.remove_prefix(before.size());
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  if (rest.empty()) return std::nullopt;
  return name_of_it(incident) + ", more: " + std::string(rest);
}

}  // namespace gradvane::agent
