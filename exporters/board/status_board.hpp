#pragma once
// What the run looks like now, and what it looked like lately: the side of the records that people and
// programs read over HTTP.
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "exporters/by_optimizer.hpp"
#include "exporters/exporter.hpp"
#include "record/numbers.hpp"

namespace gradvane::exporters {

/// A measured value, and the run step it was measured in.
template <typename T>
struct Dated {
  T value{};
  std::int64_t run_step = 0;
};

/// A non-finite element, remembered after the step has gone.
struct BadElement {
  std::int64_t run_step = 0;
  record::Site site = record::Site::grad;
  std::optional<record::NonfiniteKind> kind;  ///< absent where several kinds came at once
  std::int64_t element = -1;                  ///< row-major linear index
};

/// One parameter, with what earlier steps left behind.
struct ParamRow {
  record::ParamState state = record::ParamState::missing;
  std::optional<Dated<record::TensorNumbers>> grad;    ///< the last gradient that was read
  std::optional<Dated<record::TensorNumbers>> weight;  ///< the last weights that were read
  std::optional<Dated<double>> update_ratio;
  std::int64_t nonfinite_steps = 0;  ///< steps in which the gradient or the weights were not finite
  std::optional<BadElement> first_bad;
};

struct GroupRow {
  record::GroupStats latest;  ///< of the last step that read a gradient of the group
  /// By row of the number table: those of weights, as they were last measured.
  std::array<std::optional<Dated<double>>, record::kTensorNumbers.size()> of_weights;
};

/// What steps left behind: those of one optimizer, or all.
struct LatestNumbers {
  std::optional<record::StepRecord> latest;
  std::optional<Dated<double>> loss;  ///< the last finite one
  std::optional<Dated<double>> weight_norm;
  std::optional<Dated<double>> update_ratio;
};

/// The first non-finite element of the whole run.
struct FirstBad {
  BadElement what;
  std::string param;  ///< empty for the loss
};

/// One moment of the run: of whichever optimizer stepped last, and of each. Immutable once published.
struct Status : LatestNumbers {
  std::shared_ptr<const record::RunInfo> run;
  std::shared_ptr<const record::ModelInfo> model;
  record::RunState state = record::RunState::starting;
  std::string reason;
  std::string recording;  ///< the file that all of this is from; empty while the run lasts
  std::optional<Dated<std::int64_t>> process_resident_bytes;
  std::optional<Dated<std::int64_t>> device_allocated_bytes;
  std::shared_ptr<const record::SyncSummary> syncs;  ///< never null
  std::int64_t steps = 0;                            ///< records seen
  std::int64_t records_dropped = 0;  ///< records lost before they reached the worker
  std::int64_t skipped_steps = 0;
  std::optional<record::GovernorSummary> governor;  ///< absent: no snapshots, no rollbacks
  double agent_seconds = 0;                         ///< in hooks, of timed_seconds
  double timed_seconds = 0;                         ///< sum of step_seconds where it was measured
  std::optional<FirstBad> first_bad;
  RunLead lead;
  ByOptimizer<LatestNumbers> optimizers;
  std::vector<GroupRow> groups;             ///< index = ModelInfo::groups
  std::vector<record::Incident> incidents;  ///< newest first, the last kMaxIncidents
  std::int64_t incidents_total = 0;
};

/// The table of parameters in one step. Immutable once published.
struct ParamTable {
  std::shared_ptr<const record::ModelInfo> model;
  std::int64_t run_step = 0;
  std::vector<ParamRow> rows;  ///< index = ModelInfo::params
};

struct TakenSteps {
  std::vector<record::StepRecord> steps = {};  ///< oldest first
  std::uint64_t next = 0;                      ///< the cursor to ask with next time
};

inline constexpr std::size_t kMaxIncidents = 100;

/// Threading: the Exporter calls come from the worker; status(), params() and steps() from any thread.
/// Readers get a snapshot and hold no lock while they use it.
class StatusBoard final : public Exporter {
 public:
  /// @param history  steps kept for steps(); their memory is taken as they come, about 1.3 kB each
  explicit StatusBoard(std::size_t history = 4096);
  ~StatusBoard() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "status_board"; }

  /// Says that the run is over and is shown from a file. To be called before start().
  void set_recording(std::string_view file) { now_.recording = file; }

  /// Never null; its `run` is null before start().
  [[nodiscard]] std::shared_ptr<const Status> status() const;
  /// Never null.
  [[nodiscard]] std::shared_ptr<const ParamTable> params() const;
  /// The oldest `limit` kept steps whose run step is above `since`, oldest first. Records of one run step
  /// stay together, so that several optimizers never lose one at the end of a page.
  [[nodiscard]] std::vector<record::StepRecord> steps(std::int64_t since, std::size_t limit) const;
  /// Of one optimizer the newest `count` kept steps that were taken after `since`, a cursor from an
  /// earlier answer; 0: any. A cursor tells records of the same run step apart.
  [[nodiscard]] TakenSteps steps_of(std::int32_t optimizer, std::uint64_t since,
                                    std::size_t count) const;

 private:
  ExportResult on_start(const record::RunInfo& run,
                        const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_model(const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                       const record::ModelInfo& model) override;
  ExportResult on_incident(const record::Incident& incident) override;
  ExportResult on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) override;
  ExportResult on_settings(const std::vector<record::Setting>& settings) override;
  ExportResult on_governor(const record::GovernorSummary& summary) override;
  ExportResult on_run_state(record::RunState state, std::string_view reason) override;

  void take_model(std::shared_ptr<const record::ModelInfo> model);
  void note_params(const record::StepRecord& record, const record::StepDetail& detail);
  void note_groups(const record::StepRecord& record, const record::StepDetail& detail);
  void note_first_bad(const record::StepRecord& record);
  void publish();
  void publish_params();

  // The worker's own.
  Status now_;
  ParamTable table_;
  struct TablePool;
  std::shared_ptr<TablePool> pool_;  ///< published tables that nobody reads any more
  std::size_t capacity_;

  mutable std::mutex mutex_;  ///< guards what follows
  std::shared_ptr<const Status> status_;
  std::shared_ptr<const ParamTable> params_;
  std::deque<record::StepRecord> history_;
  std::uint64_t taken_ = 0;  ///< records that ever went into history_
};

}  // namespace gradvane::exporters
