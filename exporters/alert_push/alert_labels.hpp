#pragma once
// Labels that an alert carries besides its own, so that its set of labels is that of the rule's
// alert.
#include <map>
#include <string>
#include <string_view>

namespace gradvane::exporters {

using AlertLabels = std::map<std::string, std::string>;

/// Throws std::invalid_argument for a name or value that Alertmanager would refuse with the whole
/// alert, and for a name that every alert has: alertname, severity, run, rank.
void check_alert_labels(const AlertLabels& labels);

/// "job=training,instance=node-1:9400". Throws std::invalid_argument for what is not such a list, or a label that
/// check_alert_labels() refuses.
[[nodiscard]] AlertLabels parse_alert_labels(std::string_view text);

}  // namespace gradvane::exporters
