#pragma once
// What all ranks know together of the step in hand: the same on each, from the same records.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "agent/ranks/rank_record.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::agent::ranks {

/// Where a bad step comes from, as far as its own rank knows.
struct Origin {
  std::int32_t rank = 0;
  bool loss_is_bad = false;                ///< its own; else its own gradient was
  std::int64_t micro_step = 0;             ///< of its bad loss, from 1; 0: not known
  std::optional<BadElement> own_gradient;  ///< before it was averaged

  bool operator==(const Origin&) const = default;
};

/// Facts are joined by OR and by maximum: a rank that saw nothing never overrules one that did.
struct Agreement {
  bool loss_is_bad = false;
  bool gradients_are_bad = false;
  /// The lowest rank whose own loss was bad, or its own gradient before it was averaged. Absent if
  /// there is none: gradients are averaged over all ranks, so that a bad one is bad everywhere and
  /// names no rank.
  std::optional<Origin> origin;
  /// L2 norm of the gradients of the whole model. Absent if a rank did not know its part.
  std::optional<double> norm;
  std::optional<record::IncidentClass> incident;  ///< of the lowest rank that has one
  std::int64_t bad_since = 0;  ///< the earliest run step that a rank names for it
  /// Run steps of the snapshots that every rank has, the newest first; 0: none.
  std::array<std::int64_t, kGenerations> snapshots{};
  std::optional<Policy> policy;  ///< rank 0's
};

struct Outcome {
  std::optional<Agreement> agreement;
  std::string why_not;  ///< one sentence, if there is none
};

/// `records`: what each rank told, by rank. There is no agreement if one cannot be read, or is of another
/// exchange, step or optimizer: then ranks do not run in step.
[[nodiscard]] Outcome agree(std::span<const std::string> records);

/// Which rank a bad step comes from, for the log. `name_of`: a parameter, by its order.
[[nodiscard]] std::string origin_of(const Agreement& agreed,
                                    const std::function<std::string(std::int32_t)>& name_of);

}  // namespace gradvane::agent::ranks
