#pragma once
// What all detectors of a run share: one sequence of numbers for their incidents, and the classes that are judged.
#include <array>
#include <cstdint>

#include "record/incident_classes.hpp"
#include "record/names.hpp"

namespace gradvane::detectors {

/// Classes that are judged, by IncidentClass.
using Judged = std::array<bool, record::kIncidentClasses>;

/// What `detect: default` means.
constexpr Judged default_judged() noexcept {
  Judged judged{};
  for (const record::IncidentClassInfo& info : record::kIncidentClassTable)
    judged[index_of(info.kind)] = info.is_default;
  return judged;
}

class IncidentBook {
 public:
  IncidentBook() = default;
  explicit IncidentBook(const Judged& judged) : judged_(judged) {}

  void change(const Judged& judged) noexcept { judged_ = judged; }
  std::int64_t next_id() noexcept { return ++last_id_; }
  [[nodiscard]] bool is_judged(record::IncidentClass kind) const noexcept {
    return judged_[index_of(kind)];
  }

 private:
  Judged judged_ = default_judged();
  std::int64_t last_id_ = 0;
};

}  // namespace gradvane::detectors
