#include "exporters/recorder/ring_writer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "exporters/files/file_word.hpp"
#include "exporters/files/private_directory.hpp"

namespace gradvane::exporters::recording {
namespace {

constexpr std::chrono::milliseconds kLongestRetry = std::chrono::minutes(1);

}  // namespace

std::filesystem::path RingWriter::path(const std::filesystem::path& directory, std::string_view run,
                                       int rank) {
  return directory / (file_word(run) + ".rank" + std::to_string(rank) + ".ring.gvrec");
}

bool RingWriter::start(const record::RunInfo& run) {
  if (options_.bytes == 0 || options_.directory == nullptr) return true;
  std::size_t size = options_.bytes;
  if (options_.bytes_in_memory > 0) {
    const int directory = options_.directory->use();
    if (directory >= 0 && is_in_memory(directory)) size = options_.bytes_in_memory;
  }
  ring_.emplace(
      options_.directory, path({}, run.run, run.rank).string(),
      FileHeader{
          .ring_size = size, .pid = run.pid, .rank = run.rank, .start_time = run.start_time});
  return is_there() || !take_fault();
}

bool RingWriter::put(std::string_view frames) { return !ring_ || try_put(frames) || !take_fault(); }

void RingWriter::put_standing() {
  if (ring_ && ring_->is_open()) (void)write_standing();
}

bool RingWriter::finish() {
  if (!ring_ || !ring_->is_open()) return true;
  std::string frames;
  recorded_.standing.append_changing(frames, recorded_.maker);
  recorded_.append_end(frames, "finish", true);
  const bool ok = put(frames);
  ring_->close();
  return ok;
}

void RingWriter::remove() {
  if (ring_) ring_->remove();
}

/// Opens it again where it was lost, once it is time to, with the steps that memory still has.
bool RingWriter::is_there() {
  if (ring_->is_open()) return true;
  const auto now = Clock::now();
  if (now < retry_at_) return false;
  if (!ring_->open()) return fail();
  if (!write_standing()) return false;
  for (const KeptStep& step : recorded_.memory.steps()) {
    if (step.frames.size() > ring_->most_at_once()) continue;
    if (!ring_->append(step.frames)) return fail();
    if (ring_->written() - standing_at_ >= ring_->size() / 2 && !write_standing()) return false;
  }
  since_ = now;
  return true;
}

bool RingWriter::take_fault() { return std::exchange(has_new_fault_, false); }

bool RingWriter::try_put(std::string_view frames) {
  if (!ring_->is_open()) return is_there();  // with the step at hand, which memory has already
  if (frames.size() > ring_->most_at_once()) {
    ++recorded_.counts.ring_too_small;
    if (!std::exchange(is_too_small_, true)) has_new_fault_ = true;
    return false;
  }
  // Half a round later they are written again. Everything is a quarter of a round at most, so the copy before
  // is not touched until this one is whole.
  if (ring_->written() - standing_at_ >= ring_->size() / 2 && !write_standing()) return false;
  return ring_->append(frames) || fail();
}

bool RingWriter::write_standing() {
  const StandingRecords& standing = recorded_.standing;
  std::string frames;
  standing.append_all(frames, recorded_.maker);
  if (frames.size() > ring_->most_at_once()) {
    // Steps without names are better than none.
    ++recorded_.counts.ring_too_small;
    frames.clear();
    recorded_.maker.append(frames, FrameType::run, standing.run());
    standing.append_changing(frames, recorded_.maker);
    if (frames.size() > ring_->most_at_once()) frames.clear();
  }
  const std::uint64_t at = ring_->written();
  if (!ring_->append(frames)) return fail();
  standing_at_ = at;
  return true;
}

/// False, for its callers to return. A disk that stays full is one fault, and so is a ring that is lost again
/// soon after it was made.
bool RingWriter::fail() {
  ring_->close();
  const auto now = Clock::now();
  const bool is_new =
      recorded_.counts.ring_failures == 0 || (since_ && now - *since_ > kLongestRetry);
  since_.reset();
  if (is_new) retry_after_ = options_.retry_after;
  retry_at_ = now + retry_after_;
  retry_after_ = std::min(2 * retry_after_, kLongestRetry);
  if (!is_new) return false;
  ++recorded_.counts.ring_failures;
  has_new_fault_ = true;
  recorded_.count_recording(false);
  return false;
}

}  // namespace gradvane::exporters::recording
