#pragma once
// One parameter as JSON, and what it shares with the run's own state.
#include <nlohmann/json.hpp>

#include "exporters/board/status_board.hpp"
#include "exporters/json/record_json.hpp"

namespace gradvane::exporters {

/// Sets `key` to the value and its step, where there is one.
template <typename T>
void put_dated(nlohmann::ordered_json& json, std::string_view key,
               const std::optional<Dated<T>>& dated) {
  if (!dated) return;
  auto& place = json[std::string(key)] = nlohmann::ordered_json::object();
  put(place, "value", std::optional(dated->value));
  place["run_step"] = dated->run_step;
}

[[nodiscard]] nlohmann::ordered_json to_json(const BadElement& bad);
/// One row of the table, with the keys of docs/api/params.schema.json.
[[nodiscard]] nlohmann::ordered_json param_json(const ParamTable& table, std::size_t index);

}  // namespace gradvane::exporters
