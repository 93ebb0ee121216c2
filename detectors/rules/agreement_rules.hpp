#pragma once
// Ranks that were to decide together and do not any more: an incident that stays open.
#include <cstdint>
#include <string_view>

#include "detectors/incident_slot.hpp"

namespace gradvane::detectors {

class AgreementRules {
 public:
  /// `book` outlives it.
  AgreementRules(std::int32_t rank, IncidentBook& book, Report report);

  /// @param why  for a person, without a full stop
  /// Throws only what `report` throws, and std::bad_alloc.
  void lost(std::string_view why, const Moment& seen);
  void tell_open(const Report& tell) const { slot_.tell_open(tell); }

 private:
  IncidentSlot slot_;
  Report report_;
};

}  // namespace gradvane::detectors
