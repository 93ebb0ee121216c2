#pragma once
// The line that a person reads of an incident each time that it is reported: nothing is said twice.
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "record/incident.hpp"

namespace gradvane::agent {

/// Of one thread.
class IncidentLines {
 public:
  /// What to say of a report: all that is known when the incident opens, what has been found out since at
  /// a later report, that it has come back, or that it has cleared. None where there is nothing new.
  [[nodiscard]] std::optional<std::string> next(const record::Incident& incident);

 private:
  static constexpr std::size_t kMostKnown = 64;  ///< that may still be open, or come back

  struct Told {
    std::string evidence;
    bool is_open = false;
  };
  std::map<std::int64_t, Told> told_;  ///< by id, the oldest first
};

}  // namespace gradvane::agent
