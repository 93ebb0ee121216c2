#pragma once
// The interface of everything that a step goes out through.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "record/incident.hpp"
#include "record/run_info.hpp"
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
/// export_incident / export_syncs / set_run_state as things happen, then finish. None throws. None waits
/// for a reader.
class Exporter {
 public:
  virtual ~Exporter() = default;
  Exporter(const Exporter&) = delete;  // one exporter, one sink
  Exporter& operator=(const Exporter&) = delete;

  /// Its word in gradvane_export_failures_total{exporter}.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// `model` is never null; it may list no parameters yet. Where start() fails, later calls may still
  /// succeed: a full disk can be emptied.
  [[nodiscard]] virtual ExportResult start(
      const record::RunInfo& run, std::shared_ptr<const record::ModelInfo> model) noexcept = 0;

  /// The watched parameters changed. To be called before the first step that uses `model`, so that
  /// counters of its groups exist at 0 before they count.
  [[nodiscard]] virtual ExportResult set_model(
      std::shared_ptr<const record::ModelInfo> model) noexcept = 0;

  /// `detail` may be empty (a step whose detail was lost). Its indices are those of `model`.
  [[nodiscard]] virtual ExportResult export_step(const record::StepRecord& record,
                                                 const record::StepDetail& detail,
                                                 const record::ModelInfo& model) noexcept = 0;

  /// Called when an incident opens, and again with the same id when it grows or closes.
  [[nodiscard]] virtual ExportResult export_incident(const record::Incident& incident) noexcept = 0;

  /// `syncs` is never null. About once a second and once at the end: all since the ledger began, in place
  /// of what was known.
  [[nodiscard]] virtual ExportResult export_syncs(
      std::shared_ptr<const record::SyncSummary> syncs) noexcept = 0;

  /// `reason` is for a person and may be empty.
  [[nodiscard]] virtual ExportResult set_run_state(record::RunState state,
                                                   std::string_view reason) noexcept = 0;

  /// Writes out what is held back, within `budget`. What can be read from the process stays readable.
  [[nodiscard]] virtual ExportResult finish(std::chrono::milliseconds budget) noexcept = 0;

 protected:
  Exporter() = default;
};

}  // namespace gradvane::exporters
