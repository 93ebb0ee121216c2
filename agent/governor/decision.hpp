#pragma once
// What the governor decides about a step, and the words for it.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/include/gradvane/options.hpp"
#include "agent/ranks/agreement.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::agent {

/// skip, rollback and stop leave the step in hand out. rollback: then the training's state goes
/// back to a snapshot.
enum class Verdict : std::uint8_t { take, skip, rollback, stop };
[[nodiscard]] std::string_view name_of(Verdict verdict) noexcept;

/// Why a step is not simply taken.
enum class Fault : std::uint8_t {
  none,
  loss,      ///< it is not finite
  gradient,  ///< one is not finite
  norm,      ///< above Options::skip_norm
  overflow,  ///< a gradient scaler has skipped step after step, and does not get over it
  incident,  ///< one that the worker has opened: non-finite weights, a divergence
};

[[nodiscard]] std::string_view name_of(RollbackOptimizer optimizer) noexcept;

struct Decision {
  Verdict verdict = Verdict::take;
  Fault fault = Fault::none;
  bool is_escalated = false;     ///< a limit was reached: skip_limit, or rollback_limit
  bool lacks_agreement = false;  ///< it stops, since one of several ranks does not go back alone
  /// Run step of the last of the skips in a row that led to it; 0: none did.
  std::int64_t skipped_at = 0;
  /// What a bad step comes from, if ranks agree and know it.
  std::optional<ranks::Origin> origin = std::nullopt;
};

/// What a rollback or a stop rests on, for a person.
struct Reason {
  std::int64_t run_step = 0;
  Fault fault = Fault::none;
  int skips_in_a_row = 0;  ///< that led to it; 0: it took none
  record::IncidentClass incident = record::IncidentClass::nonfinite_loss;
  std::string evidence = {};  ///< of the incident; empty: another rank has it
  double norm = 0;
  double bound = 0;  ///< that the norm is above
  bool lacks_snapshot = false;
  bool lacks_agreement = false;  ///< a rollback was wanted, on one of several ranks
  int rollbacks = 0;             ///< after which it stops; 0: it does not stop for them
  int window = 0;                ///< steps within which they were
};
/// One sentence without a full stop. Empty if `fault` is none.
[[nodiscard]] std::string words_of(const Reason& reason);

}  // namespace gradvane::agent
