#include "agent/worker/incidents.hpp"

#include <algorithm>
#include <utility>

#include "agent/public/detector_settings.hpp"
#include "record/clocks.hpp"

namespace gradvane::agent {

Incidents::Incidents(const Options& options, std::int32_t rank, collectors::Handoff& handoff,
                     Outlets& outlets, Recordings& recordings, UserCallbacks& callbacks,
                     Governor& governor)
    : handoff_(handoff),
      outlets_(outlets),
      recordings_(recordings),
      callbacks_(callbacks),
      governor_(governor),
      judge_(rank, detector_settings(options),
             [this](const record::Incident& incident) { report(incident); }) {}

void Incidents::trace_found(record::TracedModule module) noexcept {
  traced_.put(std::move(module));
}

void Incidents::judge(const record::StepRecord& record, const record::StepDetail& detail,
                      const record::ModelInfo& model) {
  // This step is of the state that is back.
  judge_rollbacks_if([&](const auto& rollback) { return rollback.monotonic < record.monotonic; });
  judged_at_ = record.monotonic;
  judge_.observe(record, detail, model,
                 {record.run_step, record::unix_time(), record::monotonic_time()});
  last_judged_ = std::max(last_judged_, record.run_step);
  good_state_.observe(record);
  note_state();
}

void Incidents::note_device_outcome(const record::StepRecord& record,
                                    std::int64_t number) noexcept {
  const bool was_skipped = record.skipped == record::SkipReason::governor;
  const Fault fault = record.has_nonfinite(record::Site::grad) ? Fault::gradient : Fault::loss;
  governor_.note_device_outcome(record.optimizer, number, record.run_step,
                                was_skipped ? fault : Fault::none);
}

void Incidents::note_state() noexcept {
  governor_.note_state(good_state_.last_good_step(), good_state_.is_good(), judge_.may_diverge());
}

void Incidents::judge_traced() {
  for (const record::TracedModule& module : traced_.take()) judge_.trace_found(module);
}

/// An incident comes behind the one that was its cause, whose step may still be on its way.
void Incidents::judge_rollbacks(bool all) {
  judge_rollbacks_if(
      [&](const auto& rollback) { return all || rollback.run_step <= last_judged_; });
}

template <typename IsDue>
void Incidents::judge_rollbacks_if(IsDue is_due) {
  for (record::Rollback& fresh : governor_.take_rollbacks()) rollbacks_.push_back(std::move(fresh));
  std::erase_if(rollbacks_, [&](const record::Rollback& rollback) {
    if (!is_due(rollback)) return false;
    judge_traced();  // a rollback ends the incident that has been traced
    judge_.rolled_back(rollback,
                       {rollback.run_step, record::unix_time(), record::monotonic_time()});
    good_state_.note_rollback();
    note_state();
    return true;
  });
}

void Incidents::judge_agreement() {
  if (const auto why = governor_.take_lost_agreement())
    judge_.agreement_lost(*why, {last_judged_, record::unix_time(), record::monotonic_time()});
  for (const record::ReplicaComparison& comparison : governor_.take_comparisons())
    judge_.replicas_compared(comparison,
                             {comparison.run_step, record::unix_time(), record::monotonic_time()});
}

void Incidents::judge_time(double paused_seconds) {
  judge_.tick({0, record::unix_time(), record::monotonic_time()}, paused_seconds);
}

void Incidents::change(const detectors::Settings& settings) {
  judge_.change(settings, {last_judged_, record::unix_time(), record::monotonic_time()});
}

record::Incident Incidents::stamped(const record::Incident& incident) {
  record::Incident stamped = good_state_.note(incident);
  const auto [known, is_new] = checkpoints_.try_emplace(incident.id);
  if (is_new && stamped.last_good_step)
    known->second = governor_.checkpoint_before(*stamped.last_good_step);
  stamped.last_good_checkpoint = known->second;
  if (incident.closed_at) checkpoints_.erase(known);
  return stamped;
}

void Incidents::report(const record::Incident& reported) {
  const record::Incident incident = stamped(reported);
  const bool is_new = !incident.closed_at && open_.insert(incident.id).second;
  governor_.note_incident(incident, is_new, judged_at_);
  if (incident.closed_at) {
    open_.erase(incident.id);
  } else if (is_new) {
    last_opened_ = Clock::now();
    // Whether a checkpoint is of use depends on them, and their turn may be far off.
    if (!incident.order.empty()) handoff_.ask_for_weights();
  }
  (void)outlets_.exporters().export_incident(incident);
  if (const auto line = lines_.next(incident)) callbacks_.log(*line);
  recordings_.log_new_file();
  callbacks_.report(incident);
}

void Incidents::show_open() {
  judge_.tell_open([this](const record::Incident& incident) {
    (void)outlets_.board().export_incident(stamped(incident));
  });
}

void Incidents::export_open() {
  judge_.tell_open([this](const record::Incident& incident) {
    (void)outlets_.exporters().export_incident(stamped(incident));
  });
}

}  // namespace gradvane::agent
