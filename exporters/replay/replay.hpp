#pragma once
// A recording handed to exporters as the run once was: so that the page and the API show it.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "exporters/exporter.hpp"
#include "exporters/replay/recording.hpp"

namespace gradvane::exporters::recording {

/// Everything in order: run, models, steps, each incident behind its first step, syncs, and how it ended. A run
/// that nobody saw end is failed, and the reason says why.
void replay(const Recording& recording, Exporter& to);

/// The whole of it but for details: run, models, incidents, states, and steps as in the step log.
[[nodiscard]] nlohmann::ordered_json to_json(const Recording& recording);

/// One step a line, as the step log has it.
[[nodiscard]] std::string step_log_of(const Recording& recording);

}  // namespace gradvane::exporters::recording
