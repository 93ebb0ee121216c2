#pragma once
// A made-up training run: a model, and records that look like those of a real one. Everything is a
// function of the step number, so that output can be compared with files.
#include <cstdint>
#include <memory>
#include <string>

#include "record/incident.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::exporters::fakes {

[[nodiscard]] record::RunInfo fake_run();

/// `layers` layers of four parameters and two groups each, and an embedding.
[[nodiscard]] std::shared_ptr<const record::ModelInfo> fake_model(int layers = 2);

/// One step of that model, all finite, with four host syncs; weights are read every tenth.
struct FakeStep {
  record::StepRecord record;
  record::StepDetail detail;
};

/// Makes steps one after the other, with running totals as the agent keeps them.
class FakeTraining {
 public:
  explicit FakeTraining(std::shared_ptr<const record::ModelInfo> model);

  /// The next step. The reference holds until the one after it.
  FakeStep& next();

  /// Poisons the gradient of `param` in the current step, as one element of one kind.
  void poison_gradient(std::int32_t param, record::NonfiniteKind kind, std::int64_t element = 7);
  void poison_loss(double value);

  [[nodiscard]] const record::ModelInfo& model() const { return *model_; }
  [[nodiscard]] FakeStep& current() { return step_; }

 private:
  void count(record::Site site, record::NonfiniteKind kind);

  std::shared_ptr<const record::ModelInfo> model_;
  FakeStep step_;
};

/// What the ledger says after so many steps: everything was counted, totals are the sums of the sites,
/// and all seconds are fractions that a double holds exactly.
[[nodiscard]] record::SyncSummary fake_syncs(std::int64_t steps);

/// What it says where it has never counted.
[[nodiscard]] record::SyncSummary blind_syncs(
    record::SyncSource source = record::SyncSource::none,
    record::SyncReason reason = record::SyncReason::no_cuda);

/// Puts a site in, and its calls into the totals.
void add_site(record::SyncSummary& syncs, record::SyncSite site);

[[nodiscard]] record::Incident fake_incident(std::int64_t id, std::int64_t run_step);

}  // namespace gradvane::exporters::fakes
