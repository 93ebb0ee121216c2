// The flight recorder's files: the ring on disk, and one for every incident.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "exporters/files/private_directory.hpp"
#include "exporters/recorder/flight_recorder.hpp"
#include "record/names.hpp"

namespace gradvane::exporters::recording {
namespace {

constexpr std::chrono::milliseconds kLongestRetry = std::chrono::minutes(1);
constexpr std::size_t kMostOpen = 4;
constexpr std::int64_t kMostJoined = 16;
constexpr std::int64_t kStepsAfter = 50;  // that a file has after its incident closed

}  // namespace

// ---- the ring ---------------------------------------------------------------------------------------

void FlightRecorder::start_ring(const record::RunInfo& run) {
  std::size_t size = options_.disk_bytes;
  if (options_.disk_bytes_in_memory > 0) {
    const int directory = options_.directory->use();
    if (directory >= 0 && is_in_memory(directory)) size = options_.disk_bytes_in_memory;
  }
  ring_.emplace(
      options_.directory, ring_path({}, run.run, run.rank).string(),
      FileHeader{
          .ring_size = size, .pid = run.pid, .rank = run.rank, .start_time = run.start_time});
}

/// Opens it again where it was lost, once it is time to, with the steps that memory still has.
bool FlightRecorder::ring_is_there() {
  if (ring_->is_open()) return true;
  const auto now = Clock::now();
  if (now < retry_at_) return false;
  if (!ring_->open()) return ring_failed();
  if (!write_standing()) return false;
  for (const KeptStep& step : memory_.steps()) {
    if (step.frames.size() > ring_->most_at_once()) continue;
    if (!ring_->append(step.frames)) return ring_failed();
    if (ring_->written() - standing_at_ >= ring_->size() / 2 && !write_standing()) return false;
  }
  ring_since_ = now;
  return true;
}

/// False only for a fault that was not counted yet.
bool FlightRecorder::ring_put(std::string_view frames) {
  return try_ring_put(frames) || !take_ring_fault();
}

bool FlightRecorder::take_ring_fault() { return std::exchange(has_new_ring_fault_, false); }

bool FlightRecorder::try_ring_put(std::string_view frames) {
  if (!ring_->is_open()) return ring_is_there();  // with the step at hand, which memory has already
  if (frames.size() > ring_->most_at_once()) {
    ++counts_.ring_too_small;
    if (!std::exchange(is_ring_too_small_, true)) has_new_ring_fault_ = true;
    return false;
  }
  // Half a round later they are written again. Everything is a quarter of a round at most, so the copy before
  // is not touched until this one is whole.
  if (ring_->written() - standing_at_ >= ring_->size() / 2 && !write_standing()) return false;
  return ring_->append(frames) || ring_failed();
}

bool FlightRecorder::write_standing() {
  std::string standing;
  standing_.append_all(standing, maker_);
  if (standing.size() > ring_->most_at_once()) {
    // Steps without names are better than none.
    ++counts_.ring_too_small;
    standing.clear();
    maker_.append(standing, FrameType::run, standing_.run());
    standing_.append_changing(standing, maker_);
    if (standing.size() > ring_->most_at_once()) standing.clear();
  }
  const std::uint64_t at = ring_->written();
  if (!ring_->append(standing)) return ring_failed();
  standing_at_ = at;
  return true;
}

/// False, for its callers to return. A disk that stays full is one fault, and so is a ring that is lost again
/// soon after it was made.
bool FlightRecorder::ring_failed() {
  ring_->close();
  const auto now = Clock::now();
  const bool is_new =
      counts_.ring_failures == 0 || (ring_since_ && now - *ring_since_ > kLongestRetry);
  ring_since_.reset();
  if (is_new) retry_after_ = options_.retry_after;
  retry_at_ = now + retry_after_;
  retry_after_ = std::min(2 * retry_after_, kLongestRetry);
  if (!is_new) return false;
  ++counts_.ring_failures;
  has_new_ring_fault_ = true;
  count(false);
  return false;
}

// ---- a file for an incident -------------------------------------------------------------------------

bool FlightRecorder::record_incident(const record::Incident& incident) {
  const std::string why = "incident " + std::to_string(incident.id) + " opened";
  // What comes soon after belongs to the same story.
  if (!open_.empty() && !open_.back().has_half && open_.back().joined < kMostJoined) {
    OpenFile& file = open_.back();
    ++file.joined;
    if (!incident.closed_at) file.incidents.push_back(incident.id);
    return extend(file, why);
  }
  if (!may_open_file()) {
    ++counts_.files_spared;
    return true;
  }
  if (!open_file(name_of(incident.kind), why)) return false;
  if (open_.empty()) return true;
  if (!incident.closed_at) open_.back().incidents.push_back(incident.id);
  return true;
}

/// As many files at once as are kept, then one for every `refill`.
bool FlightRecorder::may_open_file() {
  const auto now = Clock::now();
  const double refill = std::max(std::chrono::duration<double>(options_.refill).count(), 1e-6);
  tokens_ += std::chrono::duration<double>(now - refilled_at_).count() / refill;
  tokens_ = std::min<double>(tokens_, std::max(options_.kept, 1));
  refilled_at_ = now;
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

bool FlightRecorder::open_file(std::string_view word, std::string_view reason) {
  if (!files_) return true;  // said when the run began
  const record::RunInfo& run = standing_.run();
  std::string front =
      bytes_of(FileHeader{.pid = run.pid, .rank = run.rank, .start_time = run.start_time});
  standing_.append_all(front, maker_);
  std::string back;
  maker_.append(back, FrameType::end, end_of(reason, false));
  std::vector<std::string_view> parts{front};
  for (const KeptStep& step : memory_.steps()) parts.push_back(step.frames);
  parts.push_back(back);
  std::string name = files_->write(last_step_, word, parts);
  count(!name.empty());
  if (name.empty()) {
    ++counts_.files_failed;
    return false;
  }
  ++counts_.files;
  last_file_ = options_.directory->path() / name;
  if (open_.size() >= kMostOpen) open_.erase(open_.begin());
  OpenFile file{.name = std::move(name), .incidents = {}, .dropped_then = memory_.dropped()};
  if (!memory_.steps().empty()) file.last_sequence = memory_.steps().back().sequence;
  open_.push_back(std::move(file));
  return true;
}

bool FlightRecorder::extend(OpenFile& file, std::string_view reason) {
  std::string changed;
  // A model that came since is among them.
  standing_.append_all(changed, maker_);
  maker_.append(changed, FrameType::end, end_of(reason, reason == "finish"));
  std::vector<std::string_view> parts;
  for (const KeptStep& step : memory_.steps())
    if (step.sequence > file.last_sequence) parts.push_back(step.frames);
  parts.push_back(changed);
  if (!files_->append(file.name, parts)) {
    ++counts_.files_failed;
    count(false);
    return false;
  }
  if (!memory_.steps().empty()) file.last_sequence = memory_.steps().back().sequence;
  return true;
}

/// After a step: the steps that follow an incident are put in before memory loses them, and once more when it
/// has been over for a while.
bool FlightRecorder::extend_files() {
  bool ok = true;
  const std::int64_t after = std::clamp<std::int64_t>(options_.steps / 4, 1, kStepsAfter);
  for (OpenFile& file : open_) {
    ++file.steps_since;
    file.steps_over = file.incidents.empty() ? file.steps_over + 1 : 0;
    if (file.steps_over >= after) {
      ok = extend(file, "incident over") && ok;
    } else if (!file.has_half && is_half(file)) {
      file.has_half = true;
      ok = extend(file, "steps after the incident") && ok;
    }
  }
  std::erase_if(open_, [&](const OpenFile& file) { return file.steps_over >= after; });
  return ok;
}

bool FlightRecorder::is_half(const OpenFile& file) const {
  if (file.steps_since >= std::max(options_.steps / 2, 1)) return true;
  return memory_.dropped() > file.dropped_then &&
         2 * file.steps_since >= std::ssize(memory_.steps());
}

void FlightRecorder::count(bool ok) noexcept {
  if (metrics_) metrics_->add(record::Metric::recordings_total, 1, {ok ? "ok" : "failed"});
}

}  // namespace gradvane::exporters::recording
