#pragma once
// Steps for detectors, one after the other, and what they report.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "detectors/incident_slot.hpp"

namespace gradvane::detectors::test {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The words of a class that opened, and with a '-' of one that closed.
class FakeSteps : public testing::Test {
 protected:
  /// One second a step, on both clocks.
  record::StepRecord next() {
    record::StepRecord step;
    step.step = step.run_step = ++step_;
    step.time = 1000 + static_cast<double>(step_);
    step.monotonic = static_cast<double>(step_);
    return step;
  }
  Report collect() {
    return [this](const record::Incident& incident) { reports_.push_back(incident); };
  }

  /// Before the rules are made.
  void judge(record::IncidentClass kind, bool value) {
    judged_[index_of(kind)] = value;
    book_ = IncidentBook(judged_);
  }

  Judged judged_ = default_judged();
  IncidentBook book_;
  std::int64_t step_ = 0;
  std::vector<record::Incident> reports_;
};

}  // namespace gradvane::detectors::test
