#include "exporters/recording/codec.hpp"

#include "exporters/recording/fields.hpp"

namespace gradvane::exporters::recording {

void describe(auto& a, like<StepFrame> auto& frame) {
  a(1, frame.model);
  a(2, frame.record);
}

void describe(auto& a, like<StateFrame> auto& frame) {
  a(1, frame.state);
  a(2, frame.reason);
  a(3, frame.run_step);
  a(4, frame.time);
}

void describe(auto& a, like<EndFrame> auto& frame) {
  a(1, frame.reason);
  a(2, frame.run_is_over);
  a(3, frame.time);
}

namespace {

template <typename Record>
void write(std::string& out, const Record& record) {
  WriteArchive archive(out);
  describe(archive, record);
}

template <typename Record>
bool read(std::string_view payload, Record& record, ReadContext& context) {
  ReadArchive archive(payload, context);
  describe(archive, record);
  return archive.finish();
}

}  // namespace

void encode(std::string& out, const record::RunInfo& run) { write(out, run); }

void encode(std::string& out, const record::ModelInfo& model) { write(out, model); }

void encode(std::string& out, const record::Incident& incident) { write(out, incident); }

void encode(std::string& out, const record::SyncSummary& syncs) { write(out, syncs); }

void encode(std::string& out, const StateFrame& state) { write(out, state); }

void encode(std::string& out, const EndFrame& end) { write(out, end); }

void encode_step(std::string& out, const record::StepRecord& record, std::uint64_t model) {
  WriteArchive archive(out);
  archive(1, model);  // the fields of StepFrame, without a copy of the record
  archive(2, record);
}

bool decode(std::string_view payload, record::RunInfo& run, ReadContext& context) {
  return read(payload, run, context);
}

bool decode(std::string_view payload, record::ModelInfo& model, ReadContext& context) {
  return read(payload, model, context);
}

bool decode(std::string_view payload, record::Incident& incident, ReadContext& context) {
  const std::int64_t unknown = context.unknown_words;
  // Of an incident of a class to come, nothing could be said that is true.
  return read(payload, incident, context) && context.unknown_words == unknown;
}

bool decode(std::string_view payload, record::SyncSummary& syncs, ReadContext& context) {
  return read(payload, syncs, context);
}

bool decode(std::string_view payload, StateFrame& state, ReadContext& context) {
  return read(payload, state, context);
}

bool decode(std::string_view payload, EndFrame& end, ReadContext& context) {
  return read(payload, end, context);
}

bool decode(std::string_view payload, StepFrame& step, ReadContext& context) {
  return read(payload, step, context);
}

}  // namespace gradvane::exporters::recording
