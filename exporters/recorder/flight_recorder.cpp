#include "exporters/recorder/flight_recorder.hpp"

#include <algorithm>
#include <cerrno>

#include "exporters/files/file_word.hpp"
#include "record/clocks.hpp"
#include "record/names.hpp"

namespace gradvane::exporters::recording {
namespace {

constexpr std::chrono::seconds kSyncsEvery(10);

}  // namespace

FlightRecorder::FlightRecorder(RecorderOptions options, std::shared_ptr<MetricSet> metrics)
    : options_(std::move(options)),
      metrics_(std::move(metrics)),
      memory_(options_.memory_bytes, static_cast<std::size_t>(std::max(options_.steps, 1))) {}

FlightRecorder::~FlightRecorder() = default;  // what was not finished is what a killed run leaves

std::filesystem::path FlightRecorder::ring_path(const std::filesystem::path& directory,
                                                std::string_view run, int rank) {
  return directory / (file_word(run) + ".rank" + std::to_string(rank) + ".ring.gvrec");
}

ExportResult FlightRecorder::on_start(const record::RunInfo& run,
                                      const std::shared_ptr<const record::ModelInfo>& model) {
  standing_.start(run);
  standing_.set_model(model);
  if (options_.directory != nullptr)
    files_.emplace(options_.directory, run.run, run.rank, options_.kept);
  tokens_ = std::max(options_.kept, 1);
  refilled_at_ = Clock::now();
  retry_after_ = options_.retry_after;
  if (options_.disk_bytes == 0 || options_.directory == nullptr) return ExportResult::ok;
  start_ring(run);
  (void)ring_is_there();
  return take_ring_fault() ? ExportResult::failed : ExportResult::ok;
}

ExportResult FlightRecorder::on_model(const std::shared_ptr<const record::ModelInfo>& model) {
  take_model(model);
  return ExportResult::ok;
}

void FlightRecorder::take_model(std::shared_ptr<const record::ModelInfo> model) {
  // The one that goes is written once more in the ring: so it outlives the last step that is of it.
  if (ring_ && ring_->is_open()) (void)write_standing();
  standing_.set_model(std::move(model));
  if (ring_ && ring_->is_open()) (void)write_standing();
}

ExportResult FlightRecorder::on_step(const record::StepRecord& record,
                                     const record::StepDetail& detail,
                                     const record::ModelInfo& model) {
  if (standing_.model() == nullptr || standing_.model()->id != model.id)
    take_model(std::make_shared<const record::ModelInfo>(model));
  frames_.clear();
  maker_.append_step(frames_, record, detail, model.id);
  ++counts_.steps;
  last_step_ = std::max(last_step_, record.run_step);
  standing_.state().run_step = last_step_;
  bool ok = memory_.add(maker_.sequence(), record.run_step, model.id, frames_);
  if (!ok) ++counts_.steps_too_large;
  if (standing_.models() > 1 && !memory_.steps().empty())
    standing_.forget_models_before(memory_.steps().front().model);
  if (ring_) ok = ring_put(frames_) && ok;
  if (waiting_) {
    const auto incident = std::exchange(waiting_, std::nullopt);
    ok = record_incident(*incident) && ok;
  }
  ok = extend_files() && ok;
  return ok ? ExportResult::ok : ExportResult::failed;
}

ExportResult FlightRecorder::on_incident(const record::Incident& incident) {
  standing_.set_incident(incident);
  frames_.clear();
  maker_.append(frames_, FrameType::incident, incident);
  bool ok = !ring_ || ring_put(frames_);
  if (incident.id > last_incident_) {
    last_incident_ = incident.id;
    if (incident.first_step > last_step_)
      waiting_ = incident;
    else
      ok = record_incident(incident) && ok;
  }
  if (incident.closed_at)
    for (OpenFile& file : open_) std::erase(file.incidents, incident.id);
  return ok ? ExportResult::ok : ExportResult::failed;
}

ExportResult FlightRecorder::on_syncs(const std::shared_ptr<const record::SyncSummary>& syncs) {
  const auto now = Clock::now();
  bool ok = true;
  if (ring_ && now - syncs_at_ >= kSyncsEvery) {
    syncs_at_ = now;
    frames_.clear();
    maker_.append(frames_, FrameType::syncs, *syncs);
    ok = ring_put(frames_);
  }
  standing_.set_syncs(syncs);
  return ok ? ExportResult::ok : ExportResult::failed;
}

ExportResult FlightRecorder::on_run_state(record::RunState state, std::string_view reason) {
  StateFrame& known = standing_.state();
  if (known.state == state && known.reason == reason) return ExportResult::ok;
  known.state = state;
  known.reason = reason;
  known.time = record::unix_time();
  if (!ring_) return ExportResult::ok;
  frames_.clear();
  maker_.append(frames_, FrameType::state, known);
  return ring_put(frames_) ? ExportResult::ok : ExportResult::failed;
}

ExportResult FlightRecorder::on_finish(std::chrono::milliseconds /*budget*/) {
  bool ok = true;
  if (waiting_) ok = record_incident(*std::exchange(waiting_, std::nullopt));
  for (OpenFile& file : open_) ok = extend(file, "finish") && ok;
  open_.clear();
  if (ring_ && ring_->is_open()) {
    frames_.clear();
    standing_.append_changing(frames_, maker_);
    maker_.append(frames_, FrameType::end, end_of("finish", true));
    ok = ring_put(frames_) && ok;
    ring_->close();
  }
  // The ring is for runs that do not end well.
  const bool is_well = standing_.state().state == record::RunState::finished;
  if (ring_ && is_well && !standing_.has_open_incident()) ring_->remove();
  return ok ? ExportResult::ok : ExportResult::failed;
}

ExportResult FlightRecorder::write_now(std::string_view reason) noexcept try {
  if (!is_open()) return ExportResult::closed;
  waiting_.reset();
  const bool ok = open_.empty() ? open_file(reason, reason) : extend(open_.back(), reason);
  return ok ? ExportResult::ok : ExportResult::failed;
} catch (...) {
  return ExportResult::failed;
}

EndFrame FlightRecorder::end_of(std::string_view reason, bool run_is_over) const {
  return {.reason = std::string(reason), .run_is_over = run_is_over, .time = record::unix_time()};
}

}  // namespace gradvane::exporters::recording
