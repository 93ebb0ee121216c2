#pragma once
// What the options say to the detectors.
#include "agent/include/gradvane/agent.hpp"
#include "detectors/judge.hpp"

namespace gradvane::agent {

/// `options` have been checked: `detect` is a list.
[[nodiscard]] detectors::Settings detector_settings(const Options& options);

}  // namespace gradvane::agent
