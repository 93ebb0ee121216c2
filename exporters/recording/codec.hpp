#pragma once
// Records as payloads of frames, and back. What is written by one version is read by every other: fields that
// are not known are stepped over, fields that are not there keep their default.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "exporters/recording/archive.hpp"

namespace gradvane::exporters::recording {

struct StepFrame {
  std::uint64_t model = 0;  ///< ModelInfo::id
  record::StepRecord record;
};

struct StateFrame {
  record::RunState state = record::RunState::running;
  std::string reason;
  std::int64_t run_step = 0;  ///< the latest one then
  double time = 0;            ///< seconds since the epoch
};

/// Why a file ends where it does.
struct EndFrame {
  std::string reason;        ///< "finish", "incident opened", or what write_now() was told
  bool run_is_over = false;  ///< what follows is not of this run
  double time = 0;
};

/// Each puts its payload behind what `out` has.
void encode(std::string& out, const record::RunInfo& run);
void encode(std::string& out, const record::ModelInfo& model);
void encode(std::string& out, const record::Incident& incident);
void encode(std::string& out, const record::SyncSummary& syncs);
void encode(std::string& out, const record::StepDetail& detail);
void encode(std::string& out, const StateFrame& state);
void encode(std::string& out, const EndFrame& end);
void encode_step(std::string& out, const record::StepRecord& record, std::uint64_t model);

/// False where the payload is malformed, or asks for more memory than `context` has left.
[[nodiscard]] bool decode(std::string_view payload, record::RunInfo& run, ReadContext& context);
[[nodiscard]] bool decode(std::string_view payload, record::ModelInfo& model, ReadContext& context);
/// False also for an incident with a word that this version does not know, above all its class.
[[nodiscard]] bool decode(std::string_view payload, record::Incident& incident,
                          ReadContext& context);
[[nodiscard]] bool decode(std::string_view payload, record::SyncSummary& syncs,
                          ReadContext& context);
[[nodiscard]] bool decode(std::string_view payload, record::StepDetail& detail,
                          ReadContext& context);
[[nodiscard]] bool decode(std::string_view payload, StateFrame& state, ReadContext& context);
[[nodiscard]] bool decode(std::string_view payload, EndFrame& end, ReadContext& context);
[[nodiscard]] bool decode(std::string_view payload, StepFrame& step, ReadContext& context);

}  // namespace gradvane::exporters::recording
