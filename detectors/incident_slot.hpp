#pragma once
// One incident of one class at a time: when it opens, how it goes on, when it closes.
//
// A detector judges each observation as bad or good; one that it cannot judge it leaves out. The incident
// opens at the first bad one after which `open_after` in a row were bad, and closes after `close_after` good
// ones in a row. Until then it is one incident with a count, however long it lasts.
#include <cstdint>
#include <functional>
#include <optional>

#include "detectors/incident_ids.hpp"
#include "record/incident.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

/// Called with every incident that opened, and again when it closes; its `steps` are those so far.
using Report = std::function<void(const record::Incident&)>;

class IncidentSlot {
 public:
  struct Rule {
    int open_after = 1;
    int close_after = 10;
  };

  /// `ids` outlives the slot.
  IncidentSlot(record::IncidentClass kind, std::int32_t rank, Rule rule, IncidentIds& ids)
      : kind_(kind), rank_(rank), rule_(rule), ids_(ids) {}

  /// `describe` completes an incident that opens: its evidence, and who is to blame. Throws only what
  /// `describe` and `report` throw; then nothing has opened.
  void judge(bool is_bad, const record::StepRecord& step,
             const std::function<void(record::Incident&)>& describe, const Report& report);

  [[nodiscard]] bool is_open() const noexcept { return open_.has_value(); }

 private:
  record::IncidentClass kind_;
  std::int32_t rank_;
  Rule rule_;
  IncidentIds& ids_;
  std::optional<record::Incident> open_;
  std::optional<std::int64_t> bad_since_;  ///< run step of the first bad one in a row
  int bad_in_a_row_ = 0;
  int good_in_a_row_ = 0;
};

}  // namespace gradvane::detectors
