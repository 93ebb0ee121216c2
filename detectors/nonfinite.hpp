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
#include <functional>
#include <optional>

#include "detectors/incident_ids.hpp"
#include "record/incident.hpp"
#include "record/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

class NonfiniteDetector {
 public:
  static constexpr int kClearAfter = 10;

  /// Called with every incident that opened, and again when it closes; its `steps` are those so far.
  using Report = std::function<void(const record::Incident&)>;

  /// `ids` outlives the detector.
  NonfiniteDetector(std::int32_t rank, IncidentIds& ids, Report report)
      : rank_(rank), ids_(ids), report_(std::move(report)) {}

  /// Judges one step. Throws only what `report` throws.
  void observe(const record::StepRecord& step, const record::ModelInfo& model);

 private:
  void judge(record::Site site, const record::StepRecord& step, const record::ModelInfo& model);

  struct Open {
    record::Incident incident;
    int clean_reads = 0;
  };
  std::int32_t rank_;
  IncidentIds& ids_;
  Report report_;
  std::array<std::optional<Open>, record::kSites> open_;
};

}  // namespace gradvane::detectors
