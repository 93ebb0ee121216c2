#pragma once
// Records as JSON: the words that the step log and the HTTP API share.
//
// A value that was not measured is absent. A number that is not finite is the string "nan", "inf" or
// "-inf", because JSON has no such numbers.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "record/incident.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::exporters {

[[nodiscard]] nlohmann::ordered_json to_json(double value);
[[nodiscard]] nlohmann::ordered_json to_json(const record::NonfiniteCounts& counts);

/// One step, with the keys of docs/step-log.md.
[[nodiscard]] nlohmann::ordered_json to_json(const record::StepRecord& record,
                                             const record::ModelInfo& model);
[[nodiscard]] nlohmann::ordered_json to_json(const record::Incident& incident);
/// The process, without the names of run and rank.
[[nodiscard]] nlohmann::ordered_json to_json(const record::RunInfo& run);

/// The text of a JSON value on one line. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_text(const nlohmann::ordered_json& value);

/// Sets `key` where there is a value.
template <typename T>
void put(nlohmann::ordered_json& object, std::string_view key, const std::optional<T>& value);

}  // namespace gradvane::exporters
