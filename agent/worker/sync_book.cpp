#include "agent/worker/sync_book.hpp"

#include <filesystem>
#include <memory>
#include <utility>

#include "exporters/step_log/sync_report.hpp"
#include "exporters/text/sync_words.hpp"

namespace gradvane::agent {

SyncBook::SyncBook(collectors::SyncLedger* ledger, const std::string& file, record::RunInfo run,
                   Readers readers)
    : ledger_(ledger),
      file_(file.empty() ? file : std::filesystem::absolute(file).string()),
      run_(std::move(run)),
      readers_(readers) {
  if (ledger_ != nullptr) before_ = ledger_->summary();
}

void SyncBook::collect() {
  if (ledger_ != nullptr) ledger_->collect();
}

void SyncBook::book(const collectors::StepFacts& facts, record::StepRecord& record) {
  if (ledger_ == nullptr || facts.superseded) return;
  if (facts.syncs_unknown)
    readers_.judge.observe_syncs(record, {});  // it has no syncs: one more uncounted
  if (facts.syncs_until.epoch == 0) return;
  record.own_sync_budget = facts.own_sync_budget;
  if (record::StepSyncs syncs; ledger_->step(facts.syncs_after, facts.syncs_until, syncs))
    record.syncs = syncs;
  readers_.judge.observe_syncs(record, [&](record::SyncOrigin origin) {
    return ledger_->sites_of_step(facts.syncs_after, facts.syncs_until, origin);
  });
}

void SyncBook::look() {
  if (ledger_ == nullptr) return;
  ledger_->look();
  report();
}

void SyncBook::report() noexcept try {
  if (ledger_ == nullptr) return;
  auto summary = std::make_shared<record::SyncSummary>(ledger_->summary());
  if (collectors::ledger_is_shared()) {
    // It began with the program, and so does its report.
    if (summary->source == record::SyncSource::cupti) summary->source = record::SyncSource::shared;
  } else {
    summary->take_away(before_);
  }
  // To a profiler it is lent, and comes back.
  const bool is_blind = !summary->is_counting() && summary->has_counted() &&
                        summary->reason != record::SyncReason::yielded;
  if (is_blind && !is_blind_) readers_.callbacks.log(exporters::sentence_of(*summary));
  is_blind_ = is_blind;
  readers_.judge.fill(*summary);
  (void)readers_.exporters.export_syncs(summary);
  if (file_.empty()) return;
  std::string error = exporters::write_sync_report(file_, *summary, run_);
  if (!error.empty() && error != file_error_) readers_.callbacks.log("sync_report: " + error);
  file_error_ = std::move(error);
} catch (...) {  // no memory: the next second may have some
}

}  // namespace gradvane::agent
