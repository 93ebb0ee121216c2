#pragma once
// The public form of a step's record.
#include "agent/include/gradvane/agent.hpp"
#include "record/incident.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::agent {

[[nodiscard]] StepResult step_result(const record::StepRecord& record,
                                     const record::ModelInfo& model);

[[nodiscard]] Incident incident_of(const record::Incident& incident);

}  // namespace gradvane::agent
