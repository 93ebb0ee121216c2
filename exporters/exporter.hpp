#pragma once
// The interface of everything that a step goes out through.
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "record/governor_summary.hpp"
#include "record/incident.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::exporters {

enum class ExportResult : std::uint8_t {
  ok,
  failed,  ///< this item was lost here; the next one may well succeed
  closed,  ///< before start() or after finish(): nothing was done
};

/// Takes records out of the process, or to where others can read them.
///
/// All calls come from one worker thread, in this order: start, then set_model / export_step /
/// export_incident / export_syncs / export_governor / export_settings / set_run_state
/// as things happen, then finish. None
/// throws. None waits for a reader. In a forked child every call is `closed`.
///
/// An implementer has two required verbs, on_start() and on_step(). It overrides another one only if it has
/// something to do then. The base class keeps what is the same for all: whether the exporter is open, and
/// that no exception leaves it.
class Exporter {
 public:
  virtual ~Exporter() = default;
  Exporter(const Exporter&) = delete;  // one exporter, one sink
  Exporter& operator=(const Exporter&) = delete;

  /// Its word in gradvane_export_failures_total{exporter}.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// `model` is never null; it may list no parameters yet. Where start() fails, later calls may still
  /// succeed: a full disk can be emptied.
  [[nodiscard]] ExportResult start(const record::RunInfo& run,
                                   const std::shared_ptr<const record::ModelInfo>& model) noexcept;

  /// The watched parameters changed. To be called before the first step that uses `model`, so that
  /// counters of its groups exist at 0 before they count.
  [[nodiscard]] ExportResult set_model(
      const std::shared_ptr<const record::ModelInfo>& model) noexcept;

  /// `detail` may be empty (a step whose detail was lost). Its indices are those of `model`.
  [[nodiscard]] ExportResult export_step(const record::StepRecord& record,
                                         const record::StepDetail& detail,
                                         const record::ModelInfo& model) noexcept;

  /// Called when an incident opens, and again with the same id when it grows or closes.
  [[nodiscard]] ExportResult export_incident(const record::Incident& incident) noexcept;

  /// `syncs` is never null. About once a second and once at the end: all since the ledger began, in place
  /// of what was known.
  [[nodiscard]] ExportResult export_syncs(
      const std::shared_ptr<const record::SyncSummary>& syncs) noexcept;

  /// About once a second and once at the end, if there is a summary: all since the run began.
  [[nodiscard]] ExportResult export_governor(const record::GovernorSummary& summary) noexcept;

  /// Options have changed: all of them, as they are from now on.
  [[nodiscard]] ExportResult export_settings(const std::vector<record::Setting>& settings) noexcept;

  /// `reason` is for a person and may be empty.
  [[nodiscard]] ExportResult set_run_state(record::RunState state,
                                           std::string_view reason) noexcept;

  /// Writes out what is held back, within `budget`. What can be read from the process stays readable.
  [[nodiscard]] ExportResult finish(std::chrono::milliseconds budget) noexcept;

 protected:
  Exporter() = default;

  /// Between start() and finish(), in the process that called start().
  [[nodiscard]] bool is_open() const noexcept;

 private:
  // What each call does, while the exporter is open. An exception is `failed`; the exporter stays open, also
  // after one of on_start(). Only `closed` from on_start() leaves it closed.
  virtual ExportResult on_start(const record::RunInfo& run,
                                const std::shared_ptr<const record::ModelInfo>& model) = 0;
  virtual ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                               const record::ModelInfo& model) = 0;
  virtual ExportResult on_model(const std::shared_ptr<const record::ModelInfo>& model);
  virtual ExportResult on_incident(const record::Incident& incident);
  virtual ExportResult on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs);
  virtual ExportResult on_governor(const record::GovernorSummary& summary);
  virtual ExportResult on_settings(const std::vector<record::Setting>& settings);
  virtual ExportResult on_run_state(record::RunState state, std::string_view reason);
  virtual ExportResult on_finish(std::chrono::milliseconds budget);

  template <typename Call>
  ExportResult while_open(Call call) const noexcept;

  pid_t owner_ = 0;  ///< the process that called start(); 0: not started, or finished
};

}  // namespace gradvane::exporters
