#pragma once
// One incident of one class at a time: when it opens, how it goes on, when it closes.
//
// A detector judges each observation as bad or good; one that it cannot judge it leaves out. The incident
// opens at the first bad one after which `open_after` in a row were bad, and closes after `close_after` good
// ones in a row. Until then it is one incident with a count, however long it lasts. One that would open
// within `cooldown_seconds` of the last one's end is that one, come back: same number, counted on.
#include <cstdint>
#include <functional>
#include <optional>

#include "detectors/incident_book.hpp"
#include "record/incident.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

/// Called with every incident that opened, again when more is known of it, and when it closes; its `steps`
/// are those so far.
using Report = std::function<void(const record::Incident&)>;

/// When something was observed.
struct Moment {
  std::int64_t run_step = 0;
  double time = 0;       ///< wall clock, seconds since the epoch
  double monotonic = 0;  ///< seconds on a clock that never jumps

  Moment() = default;
  Moment(std::int64_t step, double wall, double steady)
      : run_step(step), time(wall), monotonic(steady) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a step is a moment
  Moment(const record::StepRecord& step)
      : run_step(step.run_step), time(step.time), monotonic(step.monotonic) {}
};

class IncidentSlot {
 public:
  struct Rule {
    int open_after = 1;
    int close_after = 10;
    double cooldown_seconds = 0;
  };
  using Describe = std::function<void(record::Incident&)>;

  /// `book` outlives the slot.
  IncidentSlot(record::IncidentClass kind, std::int32_t rank, Rule rule, IncidentBook& book)
      : kind_(kind), rank_(rank), rule_(rule), book_(book) {}

  /// `describe` completes an incident that opens: its evidence, and who is to blame. Throws only what
  /// `describe` and `report` throw; where `describe` throws, nothing has opened.
  void judge(bool is_bad, const Moment& now, const Describe& describe, const Report& report);

  /// The open incident ends now, however many good ones there were. No effect where none is open.
  void close(const Moment& now, const Report& report);

  /// The training has gone back: an open incident ends, and nothing that was bad up to now is part of a row. It may come
  /// back like any other.
  void went_back(const Moment& now, const Report& report);

  /// It is not judged any more: an open incident ends, and what was bad up to now is forgotten.
  void drop(const Moment& now, const Report& report);
  void drop_if_not_judged(const Moment& now, const Report& report) {
    if (!is_judged()) drop(now, report);
  }

  /// The open incident as it stands, if there is one.
  void tell_open(const Report& tell) const {
    if (open_) tell(*open_);
  }
  /// False: judge() does nothing, and no incident ever opens.
  [[nodiscard]] bool is_judged() const noexcept { return book_.is_judged(kind_); }
  [[nodiscard]] bool is_open() const noexcept { return open_.has_value(); }
  /// Bad ones in a row up to now.
  [[nodiscard]] int bad_in_a_row() const noexcept { return bad_in_a_row_; }

 private:
  void open(const Moment& now, const Describe& describe, const Report& report);
  [[nodiscard]] bool is_back(const Moment& now) const noexcept;

  record::IncidentClass kind_;
  std::int32_t rank_;
  Rule rule_;
  IncidentBook& book_;
  std::optional<record::Incident> open_;
  std::optional<record::Incident> last_;   ///< the last one that closed, while it may come back
  double closed_monotonic_ = 0;            ///< when it did
  std::optional<std::int64_t> bad_since_;  ///< run step of the first bad one in a row
  int bad_in_a_row_ = 0;
  int good_in_a_row_ = 0;
};

}  // namespace gradvane::detectors
