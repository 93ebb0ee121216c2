#pragma once
// Each return of the training to a snapshot is an incident of its own, over at once.
#include <cstdint>

#include "detectors/incident_slot.hpp"
#include "record/rollback.hpp"

namespace gradvane::detectors {

class RollbackRules {
 public:
  /// `book` outlives it.
  RollbackRules(std::int32_t rank, IncidentBook& book, Report report);

  /// Throws only what `report` throws.
  void observe(const record::Rollback& rollback, const Moment& seen);

 private:
  IncidentSlot slot_;
  Report report_;
};

}  // namespace gradvane::detectors
