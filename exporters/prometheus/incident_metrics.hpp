#pragma once
// Incidents in, metrics out: PrometheusExporter's part for what went wrong.
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "exporters/metric_set.hpp"
#include "record/incident.hpp"

namespace gradvane::exporters {

/// Threading: as the exporter it belongs to. Throws std::bad_alloc only.
class IncidentMetrics {
 public:
  /// `metrics` outlives it.
  explicit IncidentMetrics(MetricSet& metrics) : metrics_(metrics) {}

  /// An incident that opened, grew, came back or closed.
  void put(const record::Incident& incident);

 private:
  /// Label values of gradvane_incident_info after the class, in the catalogue's order.
  using Labels = std::array<std::string, 8>;
  struct Latest {
    std::int64_t id = 0;
    Labels labels;
  };

  [[nodiscard]] static Labels labels_of(const record::Incident& incident);
  void put_info(const record::Incident& incident);
  void set_info(record::IncidentClass kind, const Labels& labels);
  void remove_info(record::IncidentClass kind, const Labels& labels);

  MetricSet& metrics_;
  std::int64_t last_ = 0;
  std::unordered_map<std::int64_t, record::IncidentClass> open_;
  std::array<Latest, record::kIncidentClasses> latest_;
};

}  // namespace gradvane::exporters
