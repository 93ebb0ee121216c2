#pragma once
// Judges the steps of a run, and reports the incidents that are found.
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "agent/governor/governor.hpp"
#include "agent/governor/mailbox.hpp"
#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/outlets.hpp"
#include "agent/outlets/recordings.hpp"
#include "agent/outlets/user_callbacks.hpp"
#include "agent/worker/incident_lines.hpp"
#include "collectors/steps/handoff.hpp"
#include "detectors/good_state.hpp"
#include "detectors/judge.hpp"
#include "record/incident.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::agent {

/// An incident goes to the exporters, the log and the user's callback.
/// Threading: trace_found() from any thread; all else from the worker's.
class Incidents {
 public:
  using Clock = std::chrono::steady_clock;

  /// `options` have been checked. The others outlive this object.
  Incidents(const Options& options, std::int32_t rank, collectors::Handoff& handoff,
            Outlets& outlets, Recordings& recordings, UserCallbacks& callbacks, Governor& governor);

  /// A traced step has named the first module that went bad.
  void trace_found(record::TracedModule module) noexcept;

  /// Of a step that was left to the device; `number` as Governor::note_device_outcome() takes it.
  void note_device_outcome(const record::StepRecord& record, std::int64_t number) noexcept;
  void judge(const record::StepRecord& record, const record::StepDetail& detail,
             const record::ModelInfo& model);
  /// Judges what traces have found since the last call.
  void judge_traced();
  /// Reports rollbacks behind steps that have been judged; with `all`, the others too.
  void judge_rollbacks(bool all);
  /// Reports that ranks do not agree any more, and what they found when they compared their weights.
  void judge_agreement();
  /// Called about once a second while the run lasts: a stall has no step that could be judged.
  /// `paused_seconds` since the latest step count for none.
  void judge_time(double paused_seconds);
  [[nodiscard]] detectors::Judge& detectors() noexcept { return judge_; }
  /// The options have changed.
  void change(const detectors::Settings& settings);

  /// Shows the open incidents again, on the page only: it shows how long they have lasted.
  void show_open();
  /// Exports the open incidents again, with all the steps that they had.
  void export_open();
  [[nodiscard]] bool has_open() const noexcept { return !open_.empty(); }
  /// When the latest incident opened. Absent if there was none.
  [[nodiscard]] std::optional<Clock::time_point> last_opened() const noexcept {
    return last_opened_;
  }

 private:
  template <typename IsDue>
  void judge_rollbacks_if(IsDue is_due);
  void report(const record::Incident& reported);
  void note_state() noexcept;
  /// With the last good step and checkpoint before it.
  [[nodiscard]] record::Incident stamped(const record::Incident& incident);

  collectors::Handoff& handoff_;
  Outlets& outlets_;
  Recordings& recordings_;
  UserCallbacks& callbacks_;
  Governor& governor_;
  detectors::GoodState good_state_;
  detectors::Judge judge_;
  IncidentLines lines_;
  std::set<std::int64_t> open_;                                      ///< by id
  std::map<std::int64_t, std::optional<std::int64_t>> checkpoints_;  ///< the last good one, by id
  std::optional<Clock::time_point> last_opened_;
  std::int64_t last_judged_ = 0;             ///< run step
  double judged_at_ = 0;                     ///< StepRecord::monotonic of the latest
  std::vector<record::Rollback> rollbacks_;  ///< not reported yet
  Mailbox<record::TracedModule> traced_;     ///< not judged yet
};

}  // namespace gradvane::agent
