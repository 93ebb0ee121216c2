#pragma once
// One thing that went wrong, once, with what is known of it.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/incident_classes.hpp"
#include "record/names.hpp"
#include "record/step_record.hpp"

namespace gradvane::record {

/// Where in a step something non-finite came about.
enum class BeganIn : std::uint8_t {
  forward,   ///< the loss was the first to be bad, or the weights were bad before
  backward,  ///< the loss was finite, a gradient was not
  update,    ///< loss and gradients were finite, the weights are not
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<BeganIn> =
    std::to_array<std::string_view>({"forward", "backward", "update"});

/// One site that became non-finite within an incident.
struct Appearance {
  Site site = Site::grad;
  std::int64_t run_step = 0;
  std::optional<FirstNonfinite> first;  ///< absent where the step's own record was lost
  std::string param;                    ///< empty for the loss
  NonfiniteCounts counts{};             ///< elements of that site in that step
  /// The run step of the read before, which was finite: it became bad between the two. Absent where
  /// the same optimizer had none.
  std::optional<std::int64_t> last_finite = std::nullopt;
};

/// What a traced step was the first to show as not finite.
enum class TracedAt : std::uint8_t {
  module,  ///< a module's output or, backward, the gradient that it sent on
  weight,  ///< a module's own weight, before the step
  input,   ///< what a module was given and no module had made
  loss,    ///< what came of the loss: itself or, backward, its gradient
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<TracedAt> =
    std::to_array<std::string_view>({"module", "weight", "input", "loss"});

/// The first module of a traced step whose output, or whose gradient, was not finite.
struct TracedModule {
  std::string name;  ///< dotted, as the module names it; empty for the root and for the loss
  std::string type;
  bool is_backward = false;
  std::int64_t run_step = 0;
  TracedAt at = TracedAt::module;
  std::int32_t micro_step = 0;  ///< of the step, from 1; 0: not known
};

/// Opened by the first bad step, counted while it lasts, closed when it clears.
struct Incident {
  std::int64_t id = 0;  ///< from 1, in order of opening
  IncidentClass kind = IncidentClass::nonfinite_grad;
  std::int32_t rank = 0;
  std::int64_t first_step = 0;  ///< run step
  std::int64_t last_step = 0;   ///< the latest bad step
  std::int64_t steps = 0;       ///< bad steps so far
  std::int32_t reopened = 0;    ///< times it came back soon after it had cleared
  double opened_at = 0;         ///< seconds since the epoch
  std::optional<double> closed_at;
  std::optional<FirstNonfinite> first;  ///< evidence: the first bad element
  std::string param;                    ///< its parameter's name, empty for the loss
  std::string group;                    ///< where a whole group is to blame
  std::vector<Appearance> order;        ///< non-finite sites, the first one first
  std::optional<BeganIn> began_in;
  std::optional<std::int32_t> micro_step;  ///< of the step, from 1, where it can be told
  std::optional<TracedModule> module;
  std::string evidence;  ///< one sentence for a person
  /// The latest run step before it that left the training's state good, as far as it was read.
  /// Absent: none is known.
  std::optional<std::int64_t> last_good_step = std::nullopt;
  /// Run step of the latest checkpoint that was seen, not after last_good_step. Absent: there was
  /// none.
  std::optional<std::int64_t> last_good_checkpoint = std::nullopt;
};

}  // namespace gradvane::record
