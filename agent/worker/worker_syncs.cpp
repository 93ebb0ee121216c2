// Worker's part that books host syncs on steps and reports them.
#include <memory>
#include <string>
#include <utility>

#include "agent/worker/worker.hpp"
#include "exporters/step_log/sync_report.hpp"
#include "exporters/text/sync_words.hpp"

namespace gradvane::agent {

void Worker::count_syncs(const collectors::StepFacts& facts, record::StepRecord& record) {
  if (ledger_ == nullptr || facts.superseded) return;
  if (facts.syncs_unknown) judge_.observe_syncs(record, {});  // it has no syncs: one more uncounted
  if (facts.syncs_until.epoch == 0) return;
  record.own_sync_budget = facts.own_sync_budget;
  if (record::StepSyncs syncs; ledger_->step(facts.syncs_after, facts.syncs_until, syncs))
    record.syncs = syncs;
  judge_.observe_syncs(record, [&](record::SyncOrigin origin) {
    return ledger_->sites_of_step(facts.syncs_after, facts.syncs_until, origin);
  });
}

/// Every second and at the end: a process that is killed leaves the report of its last second.
void Worker::report_syncs() noexcept try {
  if (ledger_ == nullptr) return;
  auto summary = std::make_shared<record::SyncSummary>(ledger_->summary());
  if (collectors::ledger_is_shared()) {
    // It began with the program, and so does its report.
    if (summary->source == record::SyncSource::cupti) summary->source = record::SyncSource::shared;
  } else {
    summary->take_away(syncs_before_);
  }
  // To a profiler it is lent, and comes back.
  const bool is_blind = !summary->is_counting() && summary->has_counted() &&
                        summary->reason != record::SyncReason::yielded;
  if (is_blind && !is_blind_) say(exporters::sentence_of(*summary));
  is_blind_ = is_blind;
  judge_.fill(*summary);
  (void)exporters_.export_syncs(summary);
  if (options_.sync_report.empty()) return;
  std::string error = exporters::write_sync_report(options_.sync_report, *summary, run_);
  if (!error.empty() && error != sync_report_error_) say("sync_report: " + error);
  sync_report_error_ = std::move(error);
} catch (...) {  // no memory: the next second may have some
}

}  // namespace gradvane::agent
