// Worker's part that books host syncs on steps and reports them.
#include <exception>
#include <memory>

#include "agent/worker.hpp"
#include "exporters/sync_report.hpp"

namespace gradvane::agent {

void Worker::count_syncs(const collectors::StepFacts& facts, record::StepRecord& record) {
  if (ledger_ == nullptr || facts.superseded || facts.syncs_until.epoch == 0) return;
  record.own_sync_budget = facts.own_sync_budget;
  if (record::StepSyncs syncs; ledger_->step(facts.syncs_after, facts.syncs_until, syncs))
    record.syncs = syncs;
  sync_budget_.observe(record, [&](record::SyncOrigin origin) {
    return ledger_->sites_of_step(facts.syncs_after, facts.syncs_until, origin);
  });
}

std::shared_ptr<const record::SyncSummary> Worker::export_syncs() {
  auto summary = std::make_shared<record::SyncSummary>(ledger_->summary());
  if (collectors::ledger_is_shared() && summary->source == record::SyncSource::cupti)
    summary->source = record::SyncSource::shared;
  sync_budget_.fill(*summary);
  (void)exporters_.export_syncs(summary);
  return summary;
}

/// At the end of the run, for whoever started it.
void Worker::write_sync_report() noexcept try {
  if (ledger_ == nullptr) return;
  const auto summary = export_syncs();
  if (options_.sync_report.empty()) return;
  const std::string error = exporters::write_sync_report(options_.sync_report, *summary, run_);
  if (!error.empty()) say("sync_report: " + error);
} catch (const std::exception& error) {  // no memory
  say(std::string("sync_report: ") + error.what());
}

}  // namespace gradvane::agent
