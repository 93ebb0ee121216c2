#pragma once
// One thing that went wrong, once, with what is known of it.
#include <cstdint>
#include <optional>
#include <string>

#include "record/step_record.hpp"

namespace gradvane::record {

enum class IncidentClass : std::uint8_t {
  nonfinite_loss,
  nonfinite_grad,
  nonfinite_weight,
  sync_budget,      ///< more host syncs in a step than it may have
  own_sync_budget,  ///< and of them Gradvane's own
};
inline constexpr int kIncidentClasses = 5;

/// Opened by the first bad step, counted while it lasts, closed when it clears.
struct Incident {
  std::int64_t id = 0;  ///< from 1, in order of opening
  IncidentClass kind = IncidentClass::nonfinite_grad;
  std::int32_t rank = 0;
  std::int64_t first_step = 0;  ///< run step
  std::int64_t last_step = 0;   ///< the latest bad step
  std::int64_t steps = 0;       ///< bad steps so far
  double opened_at = 0;         ///< seconds since the epoch
  std::optional<double> closed_at;
  std::optional<FirstNonfinite> first;  ///< evidence: the first bad element
  std::string param;                    ///< its parameter's name, empty for the loss
  std::string evidence;                 ///< one sentence for a person
};

}  // namespace gradvane::record
