#pragma once
// What the governor judges a step by.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/ranks/rank_record.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::agent {

/// What is known of a step before the optimizer takes it.
struct StepFinding {
  std::int64_t run_step = 0;
  int optimizer = 0;
  bool is_measured = false;  ///< its gradients were read, and it is known what the read has found
  bool loss_is_bad = false;
  std::int64_t bad_micro_step = 0;  ///< the first whose loss was bad, from 1; 0: not known
  bool gradients_are_bad = false;
  std::optional<ranks::BadElement> own_bad = std::nullopt;  ///< before ranks averaged it
  /// L2 norm of the gradients as they were read, unscaled; absent where it is not known, or was not
  /// asked for.
  std::optional<double> norm = std::nullopt;
  bool has_scaler = false;  ///< a gradient scaler skips the step if its gradients are bad
  bool can_skip = true;     ///< false: the optimizer has begun to change the weights already
  bool is_part = false;     ///< of the gradients: this rank's shards
  bool is_agreed = false;   ///< by all ranks
  bool is_left = false;     ///< to the devices: what they find is known later
};

/// An incident that a policy is to act on.
struct PendingIncident {
  record::IncidentClass kind = record::IncidentClass::nonfinite_loss;
  std::int64_t bad_since = 0;                          ///< the first run step that was bad
  std::shared_ptr<const std::string> words = nullptr;  ///< what was found; null: not known here
};

}  // namespace gradvane::agent
