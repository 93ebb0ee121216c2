#pragma once
// What every recording has to have besides steps, as it is now: the run, its models, incidents, state, syncs.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exporters/recording/codec.hpp"
#include "exporters/recording/frame.hpp"

namespace gradvane::exporters::recording {

/// Makes frames, each with the next number.
class FrameMaker {
 public:
  /// Puts a frame with `record` behind what `out` has; `record` is anything that encode() takes.
  template <typename Record>
  void append(std::string& out, FrameType type, const Record& record) {
    raw_.clear();
    encode(raw_, record);
    append_raw(out, type);
  }
  void append_step(std::string& out, const record::StepRecord& record,
                   const record::StepDetail& detail, std::uint64_t model);

  [[nodiscard]] std::uint64_t sequence() const noexcept {
    return sequence_;
  }  ///< of the last frame

 private:
  void append_raw(std::string& out, FrameType type) {
    append_frame(out, type, ++sequence_, raw_, deflater_);
  }

  std::uint64_t sequence_ = 0;
  std::string raw_;
  Deflater deflater_;
};

class StandingRecords {
 public:
  static constexpr std::size_t kMostIncidents = 100;

  void start(const record::RunInfo& run) { run_ = run; }
  void set_settings(const std::vector<record::Setting>& settings) { run_.settings = settings; }
  /// The one that steps are of from now on.
  void set_model(std::shared_ptr<const record::ModelInfo> model);
  /// No step before one of model `oldest` is left.
  void forget_models_before(std::uint64_t oldest);
  void set_incident(const record::Incident& incident);
  void set_syncs(std::shared_ptr<const record::SyncSummary> syncs) { syncs_ = std::move(syncs); }
  StateFrame& state() noexcept { return state_; }

  [[nodiscard]] bool has_open_incident() const;
  [[nodiscard]] const record::RunInfo& run() const noexcept { return run_; }
  [[nodiscard]] const record::ModelInfo* model() const noexcept {
    return models_.empty() ? nullptr : models_.back().get();
  }
  [[nodiscard]] std::size_t models() const noexcept { return models_.size(); }

  /// Everything; a reader that has this and some steps understands them.
  void append_all(std::string& out, FrameMaker& maker) const;
  /// What may have changed since the last append_all(): all but the run and the models.
  void append_changing(std::string& out, FrameMaker& maker) const;

 private:
  static constexpr std::size_t kMostModels = 16;

  record::RunInfo run_;
  std::vector<std::shared_ptr<const record::ModelInfo>> models_;  ///< the current one last
  std::vector<record::Incident> incidents_;                       ///< in order of their ids
  std::shared_ptr<const record::SyncSummary> syncs_;
  StateFrame state_{.state = record::RunState::starting, .reason = {}};
};

}  // namespace gradvane::exporters::recording
