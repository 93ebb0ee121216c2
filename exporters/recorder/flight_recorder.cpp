#include "exporters/recorder/flight_recorder.hpp"

#include <algorithm>
#include <utility>

#include "record/clocks.hpp"

namespace gradvane::exporters::recording {
namespace {

constexpr std::chrono::seconds kSyncsEvery(10);

ExportResult result_of(bool ok) { return ok ? ExportResult::ok : ExportResult::failed; }

}  // namespace

FlightRecorder::FlightRecorder(const RecorderOptions& options, std::shared_ptr<MetricSet> metrics)
    : recorded_(options.memory_bytes, static_cast<std::size_t>(std::max(options.steps, 1)),
                std::move(metrics)),
      ring_({.directory = options.directory,
             .bytes = options.disk_bytes,
             .bytes_in_memory = options.disk_bytes_in_memory,
             .retry_after = options.retry_after},
            recorded_),
      files_({.directory = options.directory,
              .steps = options.steps,
              .kept = options.kept,
              .refill = options.refill},
             recorded_) {}

FlightRecorder::~FlightRecorder() = default;  // what was not finished is what a killed run leaves

ExportResult FlightRecorder::on_start(const record::RunInfo& run,
                                      const std::shared_ptr<const record::ModelInfo>& model) {
  recorded_.standing.start(run);
  recorded_.standing.set_model(model);
  files_.start(run);
  return result_of(ring_.start(run));
}

ExportResult FlightRecorder::on_model(const std::shared_ptr<const record::ModelInfo>& model) {
  take_model(model);
  return ExportResult::ok;
}

ExportResult FlightRecorder::on_settings(const std::vector<record::Setting>& settings) {
  recorded_.standing.set_settings(settings);
  ring_.put_standing();
  return ExportResult::ok;
}

void FlightRecorder::take_model(std::shared_ptr<const record::ModelInfo> model) {
  // The one that goes is written once more in the ring: so it outlives the last step that is of it.
  ring_.put_standing();
  recorded_.standing.set_model(std::move(model));
  ring_.put_standing();
}

ExportResult FlightRecorder::on_step(const record::StepRecord& record,
                                     const record::StepDetail& detail,
                                     const record::ModelInfo& model) {
  if (recorded_.standing.model() == nullptr || recorded_.standing.model()->id != model.id)
    take_model(std::make_shared<const record::ModelInfo>(model));
  frames_.clear();
  recorded_.maker.append_step(frames_, record, detail, model.id);
  ++recorded_.counts.steps;
  last_step_ = std::max(last_step_, record.run_step);
  recorded_.standing.state().run_step = last_step_;
  bool ok = recorded_.memory.add(recorded_.maker.sequence(), record.run_step, model.id, frames_);
  if (!ok) ++recorded_.counts.steps_too_large;
  if (recorded_.standing.models() > 1 && !recorded_.memory.steps().empty())
    recorded_.standing.forget_models_before(recorded_.memory.steps().front().model);
  ok = ring_.put(frames_) && ok;
  if (waiting_) {
    const auto incident = std::exchange(waiting_, std::nullopt);
    ok = files_.open(*incident, last_step_) && ok;
  }
  ok = files_.step() && ok;
  return result_of(ok);
}

ExportResult FlightRecorder::on_incident(const record::Incident& incident) {
  recorded_.standing.set_incident(incident);
  frames_.clear();
  recorded_.maker.append(frames_, FrameType::incident, incident);
  bool ok = ring_.put(frames_);
  if (incident.id > last_incident_) {
    last_incident_ = incident.id;
    if (incident.first_step > last_step_)
      waiting_ = incident;
    else
      ok = files_.open(incident, last_step_) && ok;
  }
  if (incident.closed_at) files_.close(incident.id);
  return result_of(ok);
}

ExportResult FlightRecorder::on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) {
  const auto now = std::chrono::steady_clock::now();
  bool ok = true;
  if (ring_.is_wanted() && now - syncs_at_ >= kSyncsEvery) {
    syncs_at_ = now;
    frames_.clear();
    recorded_.maker.append(frames_, FrameType::syncs, *syncs);
    ok = ring_.put(frames_);
  }
  recorded_.standing.set_syncs(syncs);
  return result_of(ok);
}

ExportResult FlightRecorder::on_run_state(record::RunState state, std::string_view reason) {
  StateFrame& known = recorded_.standing.state();
  if (known.state == state && known.reason == reason) return ExportResult::ok;
  known.state = state;
  known.reason = reason;
  known.time = record::unix_time();
  if (!ring_.is_wanted()) return ExportResult::ok;
  frames_.clear();
  recorded_.maker.append(frames_, FrameType::state, known);
  return result_of(ring_.put(frames_));
}

ExportResult FlightRecorder::on_finish(std::chrono::milliseconds /*budget*/) {
  bool ok = true;
  if (waiting_) ok = files_.open(*std::exchange(waiting_, std::nullopt), last_step_);
  ok = files_.finish() && ok;
  ok = ring_.finish() && ok;
  // The ring is for runs that do not end well.
  const bool is_well = recorded_.standing.state().state == record::RunState::finished;
  if (is_well && !recorded_.standing.has_open_incident()) ring_.remove();
  return result_of(ok);
}

ExportResult FlightRecorder::write_now(std::string_view reason) noexcept try {
  if (!is_open()) return ExportResult::closed;
  waiting_.reset();
  return result_of(files_.write_now(reason, last_step_));
} catch (...) {
  return ExportResult::failed;
}

}  // namespace gradvane::exporters::recording
