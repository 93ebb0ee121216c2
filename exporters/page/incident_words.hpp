#pragma once
// Incidents in the words of the page's script (dashboards/page/src/words/incident_words.ts).
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/incident.hpp"

namespace gradvane::exporters {

/// "Non-finite gradient"
[[nodiscard]] std::string_view class_words(record::IncidentClass kind);
/// "NaN", or both where several kinds came at once.
[[nodiscard]] std::string_view kind_words(const std::optional<record::NonfiniteKind>& kind);

[[nodiscard]] bool is_nonfinite(const record::Incident& incident);
/// True if the incident only costs: what is not finite ruins a run.
[[nodiscard]] bool is_mild(const record::Incident& incident);
[[nodiscard]] bool is_open(const record::Incident& incident);

/// "gradient of layers.3.weight"; the loss has no parameter.
[[nodiscard]] std::string place_words(record::Site site, std::string_view param);
/// "NaN since step 512 in the gradient of layers.3.weight"
[[nodiscard]] std::string since_words(const record::Incident& incident);
/// "steps 5 to 9, 3 bad ones"
[[nodiscard]] std::string steps_words(const record::Incident& incident);

/// Those that are open, then the others; each part keeps its order.
[[nodiscard]] std::vector<record::Incident> open_first(
    const std::vector<record::Incident>& incidents);

}  // namespace gradvane::exporters
