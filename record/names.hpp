#pragma once
// The words for the enumerations of a record: label values of metrics and values in JSON. Part of the
// contract with whoever reads either, so they are spelled once, here.
#include <array>
#include <cstddef>
#include <string_view>

#include "record/incident.hpp"
#include "record/run_info.hpp"
#include "record/step_record.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::record {

inline constexpr std::array<std::string_view, 5> kReadAtNames{"none", "clip", "scaler", "optimizer",
                                                              "backward"};
inline constexpr std::array<std::string_view, kSites> kSiteNames{"loss", "grad", "weight"};
inline constexpr std::array<std::string_view, kNonfiniteKinds> kNonfiniteKindNames{"nan", "pos_inf",
                                                                                   "neg_inf"};
inline constexpr std::array<std::string_view, kPhases> kPhaseNames{"data", "forward", "backward",
                                                                   "optimizer", "other"};
inline constexpr std::array<std::string_view, kParamStates> kParamStateNames{
    "frozen", "missing", "empty", "zero", "finite", "nonfinite", "unsupported"};
/// SkipReason::none is no reason and has no name here: index with the reason minus one.
inline constexpr std::array<std::string_view, 3> kSkipReasonNames{"amp_overflow", "governor",
                                                                  "loop"};
inline constexpr std::array<std::string_view, kRunStates> kRunStateNames{
    "starting", "running", "stalled", "finished", "failed"};
inline constexpr std::array<std::string_view, kIncidentClasses> kIncidentClassNames{
    "nonfinite_loss", "nonfinite_grad", "nonfinite_weight", "sync_budget",     "own_sync_budget",
    "amp_overflow",   "skipped_steps",  "loss_spike",       "loss_divergence", "random_guess",
    "grad_exploding", "grad_vanishing", "grad_norm_drift",  "grad_health",     "dead_group",
    "stalled",        "data_dropped",   "agent_cost"};
inline constexpr std::array<std::string_view, kBeganIn> kBeganInNames{"forward", "backward",
                                                                      "update"};
inline constexpr std::array<std::string_view, kTracedAt> kTracedAtNames{"module", "weight", "input",
                                                                        "loss"};
inline constexpr std::array<std::string_view, kSyncKinds> kSyncKindNames{
    "device",     "stream",      "event",
    "memcpy",     "d2h_read",    "async_copy_blocked",
    "alloc_free", "module_load", "rejected_in_capture"};
inline constexpr std::array<std::string_view, kSyncOrigins> kSyncOriginNames{"training", "gradvane",
                                                                             "profiler"};
inline constexpr std::array<std::string_view, kSyncSources> kSyncSourceNames{"off", "none", "cupti",
                                                                             "shared"};
inline constexpr std::array<std::string_view, kSyncReasons> kSyncReasonNames{
    "counting",  "gated", "switched_off", "no_cuda", "no_cupti",
    "no_driver", "taken", "refused",      "yielded", "lost"};
inline constexpr std::array<std::string_view, kSyncDrops> kSyncDropNames{"threads", "sites",
                                                                         "events", "unbalanced"};
inline constexpr std::array<std::string_view, kSyncParts> kSyncPartNames{
    "in_steps", "start_up", "between_steps", "other_threads"};
/// The location of what found no room of its own.
inline constexpr std::string_view kOtherLocation = "other";

constexpr std::string_view name_of(ReadAt value) {
  return kReadAtNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(Site value) {
  return kSiteNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(TracedAt value) {
  return kTracedAtNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(NonfiniteKind value) {
  return kNonfiniteKindNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(Phase value) {
  return kPhaseNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(ParamState value) {
  return kParamStateNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(SkipReason value) {
  return value == SkipReason::none ? std::string_view("none")
                                   : kSkipReasonNames[static_cast<std::size_t>(value) - 1];
}
constexpr std::string_view name_of(RunState value) {
  return kRunStateNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(SyncKind value) {
  return kSyncKindNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(SyncOrigin value) {
  return kSyncOriginNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(SyncSource value) {
  return kSyncSourceNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(SyncReason value) {
  return kSyncReasonNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(IncidentClass value) {
  return kIncidentClassNames[static_cast<std::size_t>(value)];
}
constexpr std::string_view name_of(BeganIn value) {
  return kBeganInNames[static_cast<std::size_t>(value)];
}

}  // namespace gradvane::record
