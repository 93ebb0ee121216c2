#pragma once
// One thing that went wrong, once, with what is known of it.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/names.hpp"
#include "record/step_record.hpp"

namespace gradvane::record {

enum class IncidentClass : std::uint8_t {
  nonfinite_loss,
  nonfinite_grad,
  nonfinite_weight,
  sync_budget,      ///< more host syncs in a step than it may have
  own_sync_budget,  ///< and of them Gradvane's own
  amp_overflow,     ///< a gradient scaler skips step after step
  skipped_steps,    ///< many steps change nothing, scattered
  loss_spike,       ///< one loss far above those before
  loss_divergence,  ///< several in a row
  random_guess,     ///< it had learned, and is back to guessing
  grad_exploding,   ///< the gradient norm is far above its own history
  grad_vanishing,   ///< most parameters have next to no gradient
  grad_norm_drift,  ///< the gradient norm moves away from its running mean
  grad_health,      ///< the preset score is low
  dead_group,       ///< every gradient of a group is zero, step after step
  stalled,          ///< no step for long
  data_dropped,     ///< records were lost
  agent_cost,       ///< Gradvane takes more of the training's time than it may
};
template <>
inline constexpr auto kNames<IncidentClass> = std::to_array<std::string_view>(
    {"nonfinite_loss", "nonfinite_grad", "nonfinite_weight", "sync_budget", "own_sync_budget",
     "amp_overflow", "skipped_steps", "loss_spike", "loss_divergence", "random_guess",
     "grad_exploding", "grad_vanishing", "grad_norm_drift", "grad_health", "dead_group", "stalled",
     "data_dropped", "agent_cost"});
inline constexpr int kIncidentClasses = kCount<IncidentClass>;

/// Where in a step something non-finite came about.
enum class BeganIn : std::uint8_t {
  forward,   ///< the loss was the first to be bad, or the weights were bad before
  backward,  ///< the loss was finite, a gradient was not
  update,    ///< loss and gradients were finite, the weights are not
};
template <>
inline constexpr auto kNames<BeganIn> =
    std::to_array<std::string_view>({"forward", "backward", "update"});

/// One site that became non-finite within an incident.
struct Appearance {
  Site site = Site::grad;
  std::int64_t run_step = 0;
  std::optional<FirstNonfinite> first;  ///< absent where the step's own record was lost
  std::string param;                    ///< empty for the loss
  NonfiniteCounts counts{};             ///< elements of that site in that step
  /// The run step of the read before, which was finite: it became bad between the two. Absent where the same
  /// optimizer had none.
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
inline constexpr auto kNames<TracedAt> =
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
};

}  // namespace gradvane::record
