#include "exporters/prometheus/incident_metrics.hpp"

#include <algorithm>
#include <utility>

#include "record/names.hpp"

namespace gradvane::exporters {

using record::Metric;

void IncidentMetrics::put(const record::Incident& incident) {
  if (incident.id > last_) {
    last_ = incident.id;
    metrics_.add(Metric::incidents_total, 1, {name_of(incident.kind)});
  }
  if (incident.closed_at) {
    open_.erase(incident.id);
  } else {
    open_.emplace(incident.id, incident.kind);
  }
  const auto still_open = std::ranges::count_if(
      open_, [&](const auto& known) { return known.second == incident.kind; });
  metrics_.set(Metric::incidents_open, static_cast<double>(still_open), {name_of(incident.kind)});
  put_info(incident);
}

IncidentMetrics::Labels IncidentMetrics::labels_of(const record::Incident& incident) {
  Labels labels;
  labels[0] = std::to_string(incident.first_step);
  if (incident.first) {
    labels[1] = name_of(incident.first->site);
    labels[2] = name_of(incident.first->kind);
    if (incident.first->element >= 0 && incident.first->site != record::Site::loss)
      labels[4] = std::to_string(incident.first->element);
  }
  labels[3] = incident.param;
  labels[5] = incident.group;
  if (incident.began_in) labels[6] = name_of(*incident.began_in);
  if (incident.module) labels[7] = incident.module->name;
  return labels;
}

void IncidentMetrics::put_info(const record::Incident& incident) {
  Latest& latest = latest_[index_of(incident.kind)];
  if (incident.id < latest.id) return;
  Labels labels = labels_of(incident);
  if (latest.id == incident.id && latest.labels == labels) return;
  metrics_.set_exemplar(Metric::incidents_total, {name_of(incident.kind)},
                        {{"step", labels[0]}, {"param", labels[3]}, {"group", labels[5]}},
                        incident.opened_at);
  if (latest.id != 0) remove_info(incident.kind, latest.labels);
  set_info(incident.kind, labels);
  latest = {incident.id, std::move(labels)};
}

void IncidentMetrics::set_info(record::IncidentClass kind, const Labels& labels) {
  metrics_.set(Metric::incident_info, 1,
               {name_of(kind), labels[0], labels[1], labels[2], labels[3], labels[4], labels[5],
                labels[6], labels[7]});
}

void IncidentMetrics::remove_info(record::IncidentClass kind, const Labels& labels) {
  metrics_.remove(Metric::incident_info, {name_of(kind), labels[0], labels[1], labels[2], labels[3],
                                          labels[4], labels[5], labels[6], labels[7]});
}

}  // namespace gradvane::exporters
