// Writes docs/metrics.md to standard output, from the metric catalogue.
#include <cstdio>
#include <string>

#include "record/metric_catalogue.hpp"

namespace gr = gradvane::record;

namespace {

constexpr const char* kIntroduction =
    R"(<!-- Made by gradvane_metrics_doc from record/metric_catalogue.cpp. Do not edit: change the table there. -->
# Metrics

Everything that Gradvane publishes at `/metrics`. Every series also carries the labels `run` and `rank`.

- A value that was not measured is absent. It is never 0.
- NaN and infinity are never published. A gauge keeps its last finite value, and counters say what happened:
  `gradvane_nonfinite_elements_total` and `gradvane_nonfinite_steps_total`. They stand at 0 before the first
  step, so that `increase()` sees the first event. Only a parameter group's counter is born with its first bad step.
- Norms and largest magnitudes are over finite elements. A step that has none leaves them as they were, and is
  counted all the same.
- `gradvane_nonfinite_steps_total` has `group="loss"` for the loss, which belongs to no parameter group, and
  `group="unknown"` for a step whose own record was lost: the count is right, the group is not known.
- A step that a gradient scaler skips because of overflow counts in `gradvane_amp_overflow_steps_total` and
  `gradvane_skipped_steps_total`, and not in `gradvane_nonfinite_steps_total`.
- At most `max_series` series are published (2,000 by default), the buckets of histograms counted one by one.
  What does not fit is counted in `gradvane_series_dropped_total`. Series with the labels `group`, `name`,
  `optimizer`, `param_group` or `location` give way first.
- Where several optimizers step in turns, what is of one of them has the label `optimizer`, its index in the
  order in which they were seen; eight at most. A run with one optimizer is spared it, and so is one that has
  one after another, as the folds of a cross-validation are.
- Host syncs are counted while `gradvane_sync_source_info` has `source="cupti"` or `source="shared"`. What
  happens in the time of `gradvane_sync_coverage_seconds_total{state="blind"}` is in no other metric.
- A place in the code that has a series of `gradvane_host_sync_location_seconds_total` keeps it. The places
  that took most time are given the first twenty; what others take is added up under `location="other"`, so
  that the series together are all that was counted.
- In OpenMetrics a counter's family is named without `_total`, and an info's without `_info`.

| Metric | Type | Unit | Labels | Meaning | Present |
|---|---|---|---|---|---|
)";

std::string labels_of(const gr::MetricInfo& metric) {
  std::string text;
  for (const gr::LabelInfo& label : metric.labels) {
    if (!text.empty()) text += "; ";
    text.append("`").append(label.name).append("`");
    const char* separator = ": ";
    if (label.optional) {
      text += ", of several";
      continue;
    }
    for (const std::string_view value : label.values) {
      text.append(separator).append(value);
      separator = ", ";
    }
  }
  return text;
}

}  // namespace

int main() {
  std::string text = kIntroduction;
  for (const gr::MetricInfo& metric : gr::metric_catalogue()) {
    text.append("| `").append(metric.name).append("` | ").append(name_of(metric.type));
    text.append(" | ").append(metric.unit).append(" | ").append(labels_of(metric));
    text.append(" | ").append(metric.help).append(" | ").append(metric.present).append(" |\n");
  }
  text += "\nBuckets of `gradvane_step_duration_seconds`, in seconds:";
  for (const double bound : gr::step_duration_buckets()) {
    char number[32];
    std::snprintf(number, sizeof number, " %g", bound);
    text += number;
  }
  text += ".\n";
  return std::fputs(text.c_str(), stdout) >= 0 ? 0 : 1;
}
