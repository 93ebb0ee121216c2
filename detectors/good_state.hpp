#pragma once
// Which step left the training's state good: finite weights, as far as reads can show it, and no
// divergence.
//
// A step that was taken with a loss or gradients that are not finite spoils the state; one that was
// skipped does not. So do weights that were read and are not finite. The state is good again when
// the incident has closed, or the training has gone back to a snapshot. A divergence spoils it from the first step of its incident until that
// closes.
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "record/incident.hpp"
#include "record/step_record.hpp"

namespace gradvane::detectors {

/// Threading: one thread.
class GoodState {
 public:
  /// The incident as it was reported, with what was good when it opened. To be called for each
  /// report, and before observe() for the step that led to it.
  [[nodiscard]] record::Incident note(const record::Incident& incident);
  /// One step, once it has been judged.
  void observe(const record::StepRecord& step);

  /// The state is that of a good snapshot.
  void note_rollback() noexcept { is_spoilt_ = false; }

  /// Absent: no step was seen to leave it good.
  [[nodiscard]] std::optional<std::int64_t> last_good_step() const noexcept { return last_good_; }
  [[nodiscard]] bool is_good() const noexcept { return !is_spoilt_ && diverging_.empty(); }

 private:
  std::optional<std::int64_t> last_good_;
  bool is_spoilt_ = false;                                       ///< by something non-finite
  std::set<std::int64_t> nonfinite_;                             ///< open incidents, by id
  std::set<std::int64_t> diverging_;                             ///< the same
  std::map<std::int64_t, std::optional<std::int64_t>> at_open_;  ///< last_good_, by open incident
};

}  // namespace gradvane::detectors
