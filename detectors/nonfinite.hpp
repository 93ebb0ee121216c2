#pragma once
// Opens an incident at the first non-finite loss, gradient or weight, and closes it when that site has
// been clean for a while.
//
// Rule: a site is bad in a step when it was read and holds at least one NaN or Inf; it is judged before
// any comparison of numbers. The incident closes after kClearAfter consecutive reads of the site without
// one; reads, not steps, because weights are read seldom. A step that a gradient scaler skipped for
// overflow is neither bad nor clean for gradients: that is the scaler's daily business.
#include <array>
#include <cstdint>
#include <utility>

#include "detectors/incident_slot.hpp"
#include "record/incident.hpp"
#include "record/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

class NonfiniteDetector {
 public:
  static constexpr int kClearAfter = 10;

  /// `ids` outlives the detector.
  NonfiniteDetector(std::int32_t rank, IncidentIds& ids, Report report)
      : slots_{slot(record::Site::loss, rank, ids), slot(record::Site::grad, rank, ids),
               slot(record::Site::weight, rank, ids)},
        report_(std::move(report)) {}

  /// Judges one step. Throws only what `report` throws.
  void observe(const record::StepRecord& step, const record::ModelInfo& model);

 private:
  void judge(record::Site site, const record::StepRecord& step, const record::ModelInfo& model);

  static IncidentSlot slot(record::Site site, std::int32_t rank, IncidentIds& ids) {
    return {static_cast<record::IncidentClass>(site), rank, {1, kClearAfter}, ids};
  }

  std::array<IncidentSlot, record::kSites> slots_;
  Report report_;
};

}  // namespace gradvane::detectors
