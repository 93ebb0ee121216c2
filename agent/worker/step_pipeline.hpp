#pragma once
// The way of a step in the worker: from the hand-off to the exporters and the detectors.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "agent/outlets/outlets.hpp"
#include "agent/outlets/user_callbacks.hpp"
#include "agent/worker/flops_utilization.hpp"
#include "agent/worker/incidents.hpp"
#include "agent/worker/run_progress.hpp"
#include "agent/worker/run_status.hpp"
#include "agent/worker/step_intake.hpp"
#include "agent/worker/sync_book.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/steps/held_records.hpp"
#include "collectors/steps/step_builder.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::agent {

/// Builds the record of each step, holds it until its norm over all processes is known, and passes
/// it on.
/// Threading: the worker's.
class StepPipeline {
 public:
  /// The objects that a step is passed to. They outlive the pipeline.
  struct Readers {
    Outlets& outlets;
    SyncBook& syncs;
    Incidents& incidents;
    RunStatus& status;
    RunProgress& progress;
    UserCallbacks& callbacks;
  };

  /// `exchange` may be null: sharded parameters have no norm over all processes then.
  StepPipeline(const Options& options, collectors::Handoff& handoff,
               collectors::NormExchange* exchange, Readers readers);

  /// Before the first step, so that the counters of its groups stand at 0 when a scrape first sees
  /// them.
  void announce_model();
  /// Exports what has arrived. True if there was a step, or one is on its way. Throws
  /// std::bad_alloc: a step is lost then.
  bool drain();
  /// As drain(), for the end of a run: what that throws is counted.
  void drain_late() noexcept;
  /// The last steps of a run: their devices get a while to finish them.
  void settle();
  /// Called about once a second: counts exchanges between the processes that failed.
  void count_failures();

 private:
  bool export_ready(bool all);
  bool export_replays();
  bool export_held(bool all);
  void export_step(const StepIntake::Step& step);
  void export_record(const record::StepRecord& record, const record::StepDetail& detail,
                     const std::shared_ptr<const record::ModelInfo>& model);
  [[nodiscard]] std::shared_ptr<const record::ModelInfo> with_names(
      std::shared_ptr<const record::ModelInfo> model, const record::StepRecord& record);
  void count_lost_reads(std::int64_t reads);
  void note_device_failure();
  void note_groups(const collectors::ReadPlan& plan);
  [[nodiscard]] bool is_idle() const noexcept { return intake_.empty() && held_.empty(); }

  collectors::Handoff& handoff_;
  Readers readers_;
  StepIntake intake_;
  collectors::StepBuilder builder_;
  collectors::HeldRecords held_;
  FlopsUtilization utilization_;
  std::string said_of_groups_;
  std::shared_ptr<const std::vector<std::string>> names_;  ///< of custom metrics; never null
  std::shared_ptr<const record::ModelInfo> unnamed_;  ///< the model that the next one was made of
  std::shared_ptr<const record::ModelInfo> named_;
  std::shared_ptr<const record::ModelInfo> model_;  ///< that the exporters know; never null
  std::chrono::steady_clock::time_point last_memory_;
  bool has_said_lost_ = false;
};

}  // namespace gradvane::agent
