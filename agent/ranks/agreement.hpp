#pragma once
// What all ranks know together of the step in hand: the same on each, from the same records.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "agent/ranks/rank_record.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::agent::ranks {

/// Facts are joined by OR and by maximum: a rank that saw nothing never overrules one that did.
struct Agreement {
  bool loss_is_bad = false;
  bool gradients_are_bad = false;
  /// The lowest rank whose own loss was bad. Absent if there is none: gradients are reduced over all
  /// ranks, so that a bad one is bad everywhere and names nobody.
  std::optional<std::int32_t> first_bad_rank;
  /// L2 norm of the gradients of the whole model. Absent if a rank did not know its part.
  std::optional<double> norm;
  std::optional<record::IncidentClass> incident;  ///< of the lowest rank that has one
  std::int64_t bad_since = 0;  ///< the earliest run step that a rank names for it
  /// Run steps of the snapshots that every rank has, the newest first; 0: none.
  std::array<std::int64_t, kGenerations> snapshots{};
};

struct Outcome {
  std::optional<Agreement> agreement;
  std::string why_not;  ///< one sentence, if there is none
};

/// `records`: what each rank told, by rank. There is no agreement if one cannot be read, or is of another
/// exchange, step or optimizer: then ranks do not run in step.
[[nodiscard]] Outcome agree(std::span<const std::string> records);

}  // namespace gradvane::agent::ranks
