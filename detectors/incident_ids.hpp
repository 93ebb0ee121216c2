#pragma once
// Numbers of incidents: one sequence for all detectors of a run.
#include <cstdint>

namespace gradvane::detectors {

class IncidentIds {
 public:
  std::int64_t next() noexcept { return ++last_; }

 private:
  std::int64_t last_ = 0;
};

}  // namespace gradvane::detectors
