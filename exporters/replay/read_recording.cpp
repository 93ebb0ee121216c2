#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "exporters/recording/file_header.hpp"
#include "exporters/replay/recording.hpp"

namespace gradvane::exporters::recording {
namespace {

/// A ring has neither beginning nor end: it is turned so that no frame lies across the end of the text. Every
/// place between two frames will do, since the frames are numbered.
void turn_ring(std::string& bytes) {
  const auto ring = [&] { return std::string_view(bytes).substr(kFileHeaderSize); };
  const auto turn = [&](std::size_t by) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(kFileHeaderSize);
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(by), bytes.end());
  };
  for (int tries = 0; tries < 2; ++tries) {
    FrameScanner scanner(ring());
    if (scanner.next()) return turn(scanner.position());
    turn(ring().size() / 2);  // the only one may lie across the end
  }
}

/// Takes frames and makes a recording of them.
class Collector {
 public:
  Collector(const ReadLimits& limits, Recording& into)
      : limits_(limits), into_(into), context_{.bytes_left = limits.record_bytes} {
    into_.record_bytes = limits.record_bytes;
  }

  void take(const Frame& frame) {
    if (frame.header.type == static_cast<std::uint8_t>(FrameType::detail)) {
      details_.emplace(frame.header.sequence, frame);  // not unpacked before somebody asks
      return;
    }
    if (frame.header.type == 0 || frame.header.type > static_cast<std::uint8_t>(FrameType::end)) {
      ++into_.damage.unknown_frames;
      return;
    }
    const auto payload = payload_of(frame, limits_.payload_bytes);
    if (!payload || !understand(frame.header, *payload)) ++into_.damage.frames;
  }

  void finish() {
    for (auto& [sequence, model] : models_) into_.models.push_back(model);
    for (auto& [id, dated] : incidents_) into_.incidents.push_back(std::move(dated.second));
    for (auto& [sequence, state] : states_) {
      const bool repeats = !into_.states.empty() && into_.states.back().state == state.state &&
                           into_.states.back().reason == state.reason;
      if (repeats)
        into_.states.back() = std::move(state);  // the later one knows the later step
      else
        into_.states.push_back(std::move(state));
    }
    put_steps();
    into_.damage.unknown_words = context_.unknown_words;
  }

 private:
  template <typename Record>
  using Dated = std::pair<std::uint64_t, Record>;

  bool understand(const FrameHeader& header, std::string_view payload) {
    switch (static_cast<FrameType>(header.type)) {
      case FrameType::run:
        return run(header.sequence, payload);
      case FrameType::model:
        return model(header.sequence, payload);
      case FrameType::step:
        return step(header.sequence, payload);
      case FrameType::incident:
        return incident(header.sequence, payload);
      case FrameType::state: {
        StateFrame state;
        if (!decode(payload, state, context_)) return false;
        if (states_.size() < kMostStates) states_.emplace(header.sequence, std::move(state));
        return true;
      }
      case FrameType::syncs: {
        auto syncs = std::make_shared<record::SyncSummary>();
        if (!decode(payload, *syncs, context_)) return false;
        if (!into_.syncs || header.sequence > syncs_at_) {
          into_.syncs = std::move(syncs);
          syncs_at_ = header.sequence;
        }
        return true;
      }
      case FrameType::end: {
        EndFrame end;
        if (!decode(payload, end, context_)) return false;
        if (!into_.end || header.sequence > end_at_) {
          into_.end = std::move(end);
          end_at_ = header.sequence;
        }
        return true;
      }
      case FrameType::detail:
        break;
    }
    return false;
  }

  bool run(std::uint64_t sequence, std::string_view payload) {
    record::RunInfo run;
    if (!decode(payload, run, context_)) return false;
    if (!into_.run || sequence > run_at_) into_.run = std::move(run);
    run_at_ = std::max(run_at_, sequence);
    return true;
  }

  /// A model is written again and again, and is the same each time.
  bool model(std::uint64_t sequence, std::string_view payload) {
    auto model = std::make_shared<record::ModelInfo>();
    const std::size_t before = context_.bytes_left;
    if (!decode(payload, *model, context_)) return false;
    if (by_id_.contains(model->id)) {
      context_.bytes_left = before;
      return true;
    }
    by_id_.emplace(model->id, model);
    models_.emplace(sequence, std::move(model));
    return true;
  }

  bool step(std::uint64_t sequence, std::string_view payload) {
    StepFrame step;
    if (!decode(payload, step, context_)) return false;
    if (steps_.size() >= limits_.steps) {
      ++into_.damage.steps_left_out;
      if (sequence < steps_.begin()->first) return true;
      steps_.erase(steps_.begin());
    }
    steps_.emplace(sequence, std::move(step));
    return true;
  }

  bool incident(std::uint64_t sequence, std::string_view payload) {
    record::Incident incident;
    const std::size_t before = context_.bytes_left;
    if (!decode(payload, incident, context_)) return false;
    const auto known = incidents_.find(incident.id);
    if (known == incidents_.end()) {
      const std::int64_t id = incident.id;
      incidents_.emplace(id, Dated<record::Incident>(sequence, std::move(incident)));
      return true;
    }
    context_.bytes_left = before;
    if (sequence > known->second.first) known->second = {sequence, std::move(incident)};
    return true;
  }

  void put_steps() {
    const auto none = std::make_shared<const record::ModelInfo>();
    into_.steps.reserve(steps_.size());
    for (auto& [sequence, step] : steps_) {
      RecordedStep& put = into_.steps.emplace_back();
      put.record = step.record;
      put.sequence = sequence;
      const auto model = by_id_.find(step.model);
      put.model = model != by_id_.end() ? model->second : none;
      if (const auto detail = details_.find(sequence + 1); detail != details_.end())
        put.detail = detail->second;
    }
  }

  static constexpr std::size_t kMostStates = 10'000;

  const ReadLimits& limits_;
  Recording& into_;
  ReadContext context_;
  std::uint64_t run_at_ = 0;
  std::uint64_t syncs_at_ = 0;
  std::uint64_t end_at_ = 0;
  std::map<std::uint64_t, StepFrame> steps_;
  std::map<std::uint64_t, Frame> details_;
  std::map<std::uint64_t, StateFrame> states_;
  std::map<std::uint64_t, std::shared_ptr<record::ModelInfo>> models_;
  std::map<std::uint64_t, std::shared_ptr<record::ModelInfo>> by_id_;
  std::map<std::int64_t, Dated<record::Incident>> incidents_;
};

ReadResult refusal(std::string why) { return {.recording = nullptr, .error = std::move(why)}; }

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

/// Appends what lies from `begin` to `end`, or up to where the file has come to end meanwhile.
bool append_part(std::string& bytes, int descriptor, off_t begin, off_t end) {
  const std::size_t before = bytes.size();
  const auto size = static_cast<std::size_t>(end - begin);
  bytes.resize(before + size);
  std::size_t there = 0;
  while (there < size) {
    const ssize_t count = ::pread(descriptor, bytes.data() + before + there, size - there,
                                  begin + static_cast<off_t>(there));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) break;
    there += static_cast<std::size_t>(count);
  }
  bytes.resize(before + there);
  return true;
}

/// All that a file has on disk. Its holes, of which a few bytes of disk can have gigabytes, are left out: no frame has
/// a hole in it, and frames are found by looking for them.
std::optional<std::string> data_of(int descriptor, off_t size) {
  std::string bytes;
  for (off_t at = 0; at < size;) {
    off_t begin = ::lseek(descriptor, at, SEEK_DATA);
    if (begin < 0 && errno == ENXIO) break;  // nothing but a hole up to the end
    off_t end = begin < 0 ? -1 : ::lseek(descriptor, begin, SEEK_HOLE);
    if (end < 0) {  // a file system that does not tell
      begin = at;
      end = size;
    }
    if (!append_part(bytes, descriptor, begin, std::min(end, size))) return std::nullopt;
    at = end;
  }
  return bytes;
}

/// The limits for a file of `size` bytes.
ReadLimits limits_for(std::size_t size, ReadLimits limits) {
  constexpr std::size_t kAlways = std::size_t{16} << 20;
  constexpr std::size_t kPerByte = 64;
  const std::size_t most = kAlways + kPerByte * size;
  limits.record_bytes = std::min(limits.record_bytes, most);
  limits.payload_bytes = std::min(limits.payload_bytes, most);
  return limits;
}

ReadResult make_recording(std::string bytes, const ReadLimits& wished) {
  const ReadLimits limits = limits_for(bytes.size(), wished);
  if (bytes.empty()) return refusal("the file is empty");
  const auto recording = std::make_shared<Recording>();
  const auto header = file_header_of(bytes);
  if (header && header->version > kFormatVersion)
    return refusal("this is a recording of format " + std::to_string(header->version) +
                   ", and this Gradvane reads up to format " + std::to_string(kFormatVersion) +
                   "; read it with a newer one");
  recording->damage.header = !header;
  recording->is_ring = header && header->ring_size > 0;
  if (recording->is_ring) turn_ring(bytes);
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  recording->bytes = kept;

  Collector collector(limits, *recording);
  FrameScanner scanner(header ? std::string_view(*kept).substr(kFileHeaderSize) : *kept);
  std::int64_t frames = 0;
  for (auto frame = scanner.next(); frame; frame = scanner.next(), ++frames) collector.take(*frame);
  collector.finish();
  // In a ring, remains of what was overwritten are as they should be.
  if (!recording->is_ring) recording->damage.frames += scanner.damaged();
  recording->damage.bytes_skipped = scanner.bytes_skipped();
  if (frames == 0)
    return refusal(has_file_magic(*kept) ? "the recording has nothing in it that can be read"
                                         : "this is no recording of Gradvane");
  if (scanner.gave_up()) ++recording->damage.frames;
  return {.recording = recording, .error = {}};
}

}  // namespace

record::StepDetail Recording::detail(const RecordedStep& step) const {
  record::StepDetail detail;
  if (!step.detail) return detail;
  ReadContext context{.bytes_left = record_bytes};
  const auto payload = payload_of(*step.detail, record_bytes);
  if (!payload || !decode(*payload, detail, context)) return {};
  return detail;
}

ReadResult read_recording_bytes(std::string bytes, const ReadLimits& limits) try {
  return make_recording(std::move(bytes), limits);
} catch (const std::bad_alloc&) {
  return refusal("there is not enough memory to read it");
}

ReadResult read_recording(const std::filesystem::path& path, const ReadLimits& limits) try {
  const auto because = [] { return std::string(std::strerror(errno)); };
  // Non-blocking, so that a pipe nobody writes to is an error and not a wait.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status{};
  if (file.number < 0 || ::fstat(file.number, &status) != 0)
    return refusal("cannot read it: " + because());
  if (S_ISDIR(status.st_mode)) return refusal("this is a directory: name a file in it");
  if (!S_ISREG(status.st_mode)) return refusal("this is not a file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > limits.file_bytes) return refusal("the file is too large to be a recording");
  auto bytes = data_of(file.number, status.st_size);
  if (!bytes) return refusal("cannot read it: " + because());
  return make_recording(std::move(*bytes), limits);
} catch (const std::bad_alloc&) {
  return refusal("there is not enough memory to read it");
}

}  // namespace gradvane::exporters::recording
