#pragma once
// Moments between two steps, and phases within them, as the ledger knows them.
#include <cstdint>

#include "record/step_record.hpp"

namespace gradvane::collectors {

/// The phase of the training step is not known.
inline constexpr std::uint8_t kNoPhase = record::kStepPhases;

/// A moment between two steps.
struct SyncMark {
  std::uint64_t epoch = 0;       ///< that ended then
  std::uint64_t generation = 0;  ///< of the subscription; 0: nobody counted
  std::int64_t polls = 0;        ///< of the training until then
};

}  // namespace gradvane::collectors
