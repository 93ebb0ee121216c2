#pragma once
// Opens an incident at the first non-finite loss, gradient or weight, says which of them came first and
// where, and closes it when all is clean again.
//
// Rule: a site is bad in a step when it was read and holds at least one NaN or Inf; it is judged before
// any comparison of numbers. The first bad site gives the incident its class; sites that go bad while it is
// open join it, in the order in which they were seen. It closes when each of them has been clean for long
// enough: kClearAfter reads in a row of the loss and the gradients, one of the weights, which are read
// seldom and do not heal by themselves; or when the training has gone back. A step that a gradient scaler skipped for overflow is neither bad
// nor clean for gradients: that is the scaler's daily business. Bad steps whose own record was lost are
// known from the running totals, and open an incident that says so. Weights are read seldom: each site says when
// it was last read and finite.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "detectors/incident_slot.hpp"
#include "record/incident.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

class NonfiniteDetector {
 public:
  static constexpr int kClearAfter = 10;
  static constexpr int kWeightsClearAfter = 1;

  /// `book` outlives the detector. `is_alone`: no other rank trains, whose values this one's gradients may have.
  NonfiniteDetector(std::int32_t rank, bool is_alone, IncidentBook& book, Report report)
      : rank_(rank), is_alone_(is_alone), book_(book), report_(std::move(report)) {}

  /// Judges one step. Throws only what `report` throws.
  void observe(const record::StepRecord& step, const record::ModelInfo& model);
  /// A step was watched for the first module that went bad. It joins the incident that is open, or the one
  /// that this very step opens, once its record has come.
  void trace_found(const record::TracedModule& module);

  /// The training went back to a state that is finite.
  void went_back(const Moment& now);

  /// The open incident as it stands, if there is one.
  void tell_open(const Report& tell) const {
    if (open_) tell(*open_);
  }
  [[nodiscard]] bool is_open() const noexcept { return open_.has_value(); }

 private:
  std::int64_t take_lost(record::Site site, const record::StepRecord& step, bool bad);
  bool appear(record::Site site, const record::StepRecord& step, const record::ModelInfo& model,
              std::int64_t lost);
  void open(record::Site site, const record::StepRecord& step, const record::Appearance& first,
            std::int64_t lost);
  void name_module(const record::TracedModule& module);
  void close_if_clean(const record::StepRecord& step);
  void close(double time);

  std::int32_t rank_;
  bool is_alone_;
  IncidentBook& book_;
  Report report_;
  std::optional<record::Incident> open_;
  std::optional<record::TracedModule> traced_;             ///< of a step that has not been judged
  std::array<bool, record::kSites> is_part_{};             ///< of the open incident
  std::array<int, record::kSites> clean_reads_{};          ///< in a row
  std::array<std::int64_t, record::kSites> steps_seen_{};  ///< running totals so far
  /// Run steps of the last finite reads, by site and optimizer.
  std::array<std::map<std::int32_t, std::int64_t>, record::kSites> last_finite_;
};

}  // namespace gradvane::detectors
