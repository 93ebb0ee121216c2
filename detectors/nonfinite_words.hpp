#pragma once
// What a person is told of a non-finite incident.
#include <cstdint>
#include <string>

#include "record/incident.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

/// One sentence or a few: what became what, where, how many, and what follows from that.
/// @param lost  bad steps whose own record was lost; where above 0, `first` tells of none
std::string describe_first(const record::Incident& incident, const record::Appearance& first,
                           std::int64_t lost, const record::StepRecord& step);

/// Whether it was finite one step before.
bool is_fresh(const record::Appearance& appearance);

/// What is added when another site goes bad.
std::string describe_joined(const record::Appearance& joined);

/// What is added when a watched step has named a module.
std::string describe_module(const record::TracedModule& module);

}  // namespace gradvane::detectors
