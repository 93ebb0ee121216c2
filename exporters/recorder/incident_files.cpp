#include "exporters/recorder/incident_files.hpp"

#include <algorithm>
#include <utility>

#include "exporters/recording/file_header.hpp"
#include "record/names.hpp"

namespace gradvane::exporters::recording {
namespace {

constexpr std::size_t kMostOpen = 4;
constexpr std::int64_t kMostJoined = 16;
constexpr std::int64_t kStepsAfter = 50;  // that a file has after its incident closed

}  // namespace

void IncidentFiles::start(const record::RunInfo& run) {
  if (options_.directory != nullptr)
    files_.emplace(options_.directory, run.run, run.rank, options_.kept);
  tokens_ = std::max(options_.kept, 1);
  refilled_at_ = Clock::now();
}

bool IncidentFiles::open(const record::Incident& incident, std::int64_t run_step) {
  const std::string why = "incident " + std::to_string(incident.id) + " opened";
  // What comes soon after belongs to the same story.
  if (!open_.empty() && !open_.back().has_half && open_.back().joined < kMostJoined) {
    OpenFile& file = open_.back();
    ++file.joined;
    if (!incident.closed_at) file.incidents.push_back(incident.id);
    return extend(file, why);
  }
  if (!may_write()) {
    ++recorded_.counts.files_spared;
    return true;
  }
  if (!write(name_of(incident.kind), why, run_step)) return false;
  if (open_.empty()) return true;
  if (!incident.closed_at) open_.back().incidents.push_back(incident.id);
  return true;
}

void IncidentFiles::close(std::int64_t incident) {
  for (OpenFile& file : open_) std::erase(file.incidents, incident);
}

bool IncidentFiles::step() {
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

bool IncidentFiles::write_now(std::string_view reason, std::int64_t run_step) {
  return open_.empty() ? write(reason, reason, run_step) : extend(open_.back(), reason);
}

bool IncidentFiles::finish() {
  bool ok = true;
  for (OpenFile& file : open_) ok = extend(file, "finish") && ok;
  open_.clear();
  return ok;
}

/// As many files at once as are kept, then one for every `refill`.
bool IncidentFiles::may_write() {
  const auto now = Clock::now();
  const double refill = std::max(std::chrono::duration<double>(options_.refill).count(), 1e-6);
  tokens_ += std::chrono::duration<double>(now - refilled_at_).count() / refill;
  tokens_ = std::min<double>(tokens_, std::max(options_.kept, 1));
  refilled_at_ = now;
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

bool IncidentFiles::write(std::string_view word, std::string_view reason, std::int64_t run_step) {
  if (!files_) return true;  // said when the run began
  const record::RunInfo& run = recorded_.standing.run();
  std::string front =
      bytes_of(FileHeader{.pid = run.pid, .rank = run.rank, .start_time = run.start_time});
  recorded_.standing.append_all(front, recorded_.maker);
  std::string back;
  recorded_.append_end(back, reason, false);
  const StepMemory& memory = recorded_.memory;
  std::vector<std::string_view> parts{front};
  for (const KeptStep& step : memory.steps()) parts.push_back(step.frames);
  parts.push_back(back);
  std::string name = files_->write(run_step, word, parts);
  recorded_.count_recording(!name.empty());
  if (name.empty()) {
    ++recorded_.counts.files_failed;
    return false;
  }
  ++recorded_.counts.files;
  last_file_ = options_.directory->path() / name;
  if (open_.size() >= kMostOpen) open_.erase(open_.begin());
  OpenFile file{.name = std::move(name), .incidents = {}, .dropped_then = memory.dropped()};
  if (!memory.steps().empty()) file.last_sequence = memory.steps().back().sequence;
  open_.push_back(std::move(file));
  return true;
}

bool IncidentFiles::extend(OpenFile& file, std::string_view reason) {
  std::string changed;
  // A model that came since is among them.
  recorded_.standing.append_all(changed, recorded_.maker);
  recorded_.append_end(changed, reason, reason == "finish");
  const StepMemory& memory = recorded_.memory;
  std::vector<std::string_view> parts;
  for (const KeptStep& step : memory.steps())
    if (step.sequence > file.last_sequence) parts.push_back(step.frames);
  parts.push_back(changed);
  if (!files_->append(file.name, parts)) {
    ++recorded_.counts.files_failed;
    recorded_.count_recording(false);
    return false;
  }
  if (!memory.steps().empty()) file.last_sequence = memory.steps().back().sequence;
  return true;
}

bool IncidentFiles::is_half(const OpenFile& file) const {
  if (file.steps_since >= std::max(options_.steps / 2, 1)) return true;
  const StepMemory& memory = recorded_.memory;
  return memory.dropped() > file.dropped_then && 2 * file.steps_since >= std::ssize(memory.steps());
}

}  // namespace gradvane::exporters::recording
