#pragma once
// Ranks that had the same weights and do not have them any more.
#include <cstdint>

#include "detectors/incident_slot.hpp"
#include "record/replica_comparison.hpp"

namespace gradvane::detectors {

class ReplicaRules {
 public:
  /// `book` outlives it.
  ReplicaRules(std::int32_t rank, IncidentBook& book, Report report);

  /// Throws only what `report` throws, and std::bad_alloc.
  void compared(const record::ReplicaComparison& comparison, const Moment& seen);
  void tell_open(const Report& tell) const { slot_.tell_open(tell); }

 private:
  IncidentSlot slot_;
  Report report_;
};

}  // namespace gradvane::detectors
