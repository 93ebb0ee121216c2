#pragma once
// Books host syncs on the steps that they belong to, and reports all of them.
#include <string>

#include "agent/outlets/user_callbacks.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/sync_ledger/sync_ledger.hpp"
#include "detectors/judge.hpp"
#include "exporters/exporter_set.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::agent {

/// Without a ledger every call does nothing.
/// Threading: the worker's.
class SyncBook {
 public:
  /// The objects that host syncs are passed to. They outlive the book.
  struct Readers {
    detectors::Judge& judge;
    exporters::ExporterSet& exporters;
    UserCallbacks& callbacks;
  };

  /// `ledger` may be null. The report goes to `file` too, unless that is empty.
  SyncBook(collectors::SyncLedger* ledger, const std::string& file, record::RunInfo run,
           Readers readers);

  /// Takes what the ledger has counted since. To be called before the steps are taken.
  void collect();
  /// Completes the record with the step's host syncs, and has them judged.
  void book(const collectors::StepFacts& facts, record::StepRecord& record);
  /// Called about once a second.
  void look();
  /// Called every second and at the end: a process that is killed leaves the report of its last
  /// second.
  void report() noexcept;

 private:
  collectors::SyncLedger* ledger_;
  std::string file_;
  record::RunInfo run_;
  Readers readers_;
  record::SyncSummary before_;  ///< of an earlier run in this process
  std::string file_error_;      ///< said already
  bool is_blind_ = false;       ///< said already: host syncs are counted no more
};

}  // namespace gradvane::agent
