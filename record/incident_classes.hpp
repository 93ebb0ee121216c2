#pragma once
// The table of incident classes: what each is called, how grave it is, which alert it raises. Detectors, metrics,
// pages, stories and pushed alerts read it. scripts/make_numbers.py writes the page's words, the alert rules'
// table and the table in docs/detectors.md from it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "record/alert_rules.hpp"
#include "record/names.hpp"

namespace gradvane::record {

enum class IncidentClass : std::uint8_t {
  nonfinite_loss,
  nonfinite_grad,
  nonfinite_weight,
  sync_budget,       ///< more host syncs in a step than it may have
  own_sync_budget,   ///< more host syncs of Gradvane's own than it may have
  amp_overflow,      ///< a gradient scaler skips step after step
  skipped_steps,     ///< many steps change nothing, scattered
  loss_spike,        ///< one loss far above those before
  loss_divergence,   ///< several losses in a row are far above those before
  random_guess,      ///< it had learned, and is back to guessing
  grad_exploding,    ///< the gradient norm is far above its own history
  grad_vanishing,    ///< most parameters have next to no gradient
  grad_norm_drift,   ///< the gradient norm moves away from its running mean
  grad_health,       ///< the preset score is low
  dead_group,        ///< every gradient of a group is zero, step after step
  stalled,           ///< no step for long
  data_dropped,      ///< records were lost
  agent_cost,        ///< Gradvane takes more of the training's time than it may
  grad_norm_bound,   ///< the gradient norm is above the bound at which a step is skipped
  rollback,          ///< the training went back to a snapshot of its state
  agreement_lost,    ///< ranks were to decide on steps together, and each decides alone now
  replica_mismatch,  ///< ranks that had the same weights have others now
};

/// How bad an incident is for the run, the worst first. The page and the story begin with the worst.
enum class Gravity : std::uint8_t {
  nonfinite,   ///< values are NaN or infinite: what was trained may be lost
  training,    ///< the training goes wrong or learns nothing
  standstill,  ///< no steps are made
  mild,  ///< it costs time or records, or only a score is low: the training itself is not harmed
};
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<Gravity> =
    std::to_array<std::string_view>({"nonfinite", "training", "standstill", "mild"});

struct IncidentClassInfo {
  IncidentClass kind;
  std::string_view name;   ///< in JSON, in labels, in names of files and in the option `detect`
  std::string_view title;  ///< a heading on the page
  Gravity gravity;
  std::string_view alert;  ///< of kAlertRules
  bool is_default = true;  ///< `default` in the option `detect` includes it
  // The words of docs/detectors.md.
  std::string_view opens;         ///< when an incident opens
  std::string_view closes;        ///< after what it closes
  std::string_view setting = {};  ///< the default of the option that decides whether it opens
};

namespace detail {

inline constexpr std::string_view kNonfiniteOpens =
    "a loss, gradient or weight that was read holds NaN or Inf; the class is that of the first "
    "site";
inline constexpr std::string_view kNonfiniteCloses =
    "10 clean reads of loss and gradients, 1 of the weights, of each site involved";

}  // namespace detail

/// In the order of the enumerators. Recordings have their numbers: append.
inline constexpr std::array kIncidentClassTable{
    IncidentClassInfo{.kind = IncidentClass::nonfinite_loss,
                      .name = "nonfinite_loss",
                      .title = "Non-finite loss",
                      .gravity = Gravity::nonfinite,
                      .alert = "GradvaneTrainingLossNonFinite",
                      .opens = detail::kNonfiniteOpens,
                      .closes = detail::kNonfiniteCloses},
    IncidentClassInfo{.kind = IncidentClass::nonfinite_grad,
                      .name = "nonfinite_grad",
                      .title = "Non-finite gradient",
                      .gravity = Gravity::nonfinite,
                      .alert = "GradvaneTrainingNonFinite",
                      .opens = detail::kNonfiniteOpens,
                      .closes = detail::kNonfiniteCloses},
    IncidentClassInfo{.kind = IncidentClass::nonfinite_weight,
                      .name = "nonfinite_weight",
                      .title = "Non-finite weights",
                      .gravity = Gravity::nonfinite,
                      .alert = "GradvaneTrainingNonFinite",
                      .opens = detail::kNonfiniteOpens,
                      .closes = detail::kNonfiniteCloses},
    IncidentClassInfo{.kind = IncidentClass::sync_budget,
                      .name = "sync_budget",
                      .title = "More host syncs than allowed",
                      .gravity = Gravity::mild,
                      .alert = "GradvaneHostSyncBudgetExceeded",
                      .opens = "a step has more host syncs than `sync_budget`",
                      .closes = "10 steps within",
                      .setting = "no budget"},
    IncidentClassInfo{.kind = IncidentClass::own_sync_budget,
                      .name = "own_sync_budget",
                      .title = "More host syncs of Gradvane\xE2\x80\x99s own than allowed",
                      .gravity = Gravity::mild,
                      .alert = "GradvaneHostSyncBudgetExceeded",
                      .opens = "Gradvane itself has more than 0, or than one per device in "
                               "immediate mode and under a policy",
                      .closes = "10 steps within"},
    IncidentClassInfo{.kind = IncidentClass::amp_overflow,
                      .name = "amp_overflow",
                      .title = "Gradient scaler keeps overflowing",
                      .gravity = Gravity::training,
                      .alert = "GradvaneAmpOverflowStreak",
                      .opens = "a gradient scaler skips `overflow_streak` steps in a row",
                      .closes = "10 steps taken",
                      .setting = "8"},
    IncidentClassInfo{
        .kind = IncidentClass::skipped_steps,
        .name = "skipped_steps",
        .title = "Many steps skipped",
        .gravity = Gravity::training,
        .alert = "GradvaneTrainingStepsSkipped",
        .opens = "half of the last 50 steps changed nothing, and no other incident explains it",
        .closes = "at a tenth, 10 steps"},
    IncidentClassInfo{
        .kind = IncidentClass::loss_spike,
        .name = "loss_spike",
        .title = "Loss spike",
        .gravity = Gravity::training,
        .alert = "GradvaneLossSpike",
        .opens = "fewer than `loss_in_a_row` outliers in a row, reported when they are over",
        .closes = "at once"},
    IncidentClassInfo{.kind = IncidentClass::loss_divergence,
                      .name = "loss_divergence",
                      .title = "Loss diverges",
                      .gravity = Gravity::training,
                      .alert = "GradvaneLossDiverging",
                      .opens = "`loss_in_a_row` outliers in a row",
                      .closes = "10 normal losses",
                      .setting = "3"},
    IncidentClassInfo{.kind = IncidentClass::random_guess,
                      .name = "random_guess",
                      .title = "Loss back at random guessing",
                      .gravity = Gravity::training,
                      .alert = "GradvaneLossBackToRandomGuessing",
                      .opens = "the loss is back at `random_guess_loss`",
                      .closes = "10 losses elsewhere",
                      .setting = "not known"},
    IncidentClassInfo{.kind = IncidentClass::grad_exploding,
                      .name = "grad_exploding",
                      .title = "Gradients explode",
                      .gravity = Gravity::training,
                      .alert = "GradvaneGradientNormExploding",
                      .opens = "the gradient norm is `exploding_factor` times the median of the "
                               "last 100, 3 times in a row",
                      .closes = "10 steps",
                      .setting = "10"},
    IncidentClassInfo{.kind = IncidentClass::grad_vanishing,
                      .name = "grad_vanishing",
                      .title = "Gradients vanish",
                      .gravity = Gravity::training,
                      .alert = "GradvaneGradientsVanishing",
                      .opens = "`vanishing_share` of the parameters are below "
                               "`vanishing_threshold`, 10 steps in a row",
                      .closes = "10 steps",
                      .setting = "0.5"},
    IncidentClassInfo{
        .kind = IncidentClass::grad_norm_drift,
        .name = "grad_norm_drift",
        .title = "Gradient norm drifts",
        .gravity = Gravity::training,
        .alert = "GradvaneGradientNormDrift",
        .opens = "the norm is `drift_threshold` away from its running mean, 50 steps in a row",
        .closes = "10 steps",
        .setting = "2"},
    IncidentClassInfo{.kind = IncidentClass::grad_health,
                      .name = "grad_health",
                      .title = "Gradient health low",
                      .gravity = Gravity::mild,
                      .alert = "GradvaneGradientHealthLow",
                      .is_default = false,
                      .opens = "the score of preset esper_v1 is below 0.5, 5 steps in a row",
                      .closes = "at 0.7, 10 steps"},
    IncidentClassInfo{
        .kind = IncidentClass::dead_group,
        .name = "dead_group",
        .title = "Group without gradient",
        .gravity = Gravity::training,
        .alert = "GradvaneDeadParameterGroup",
        .opens = "all gradients of a group are exactly zero for `dead_after` steps, others are not",
        .closes = "10 steps",
        .setting = "50"},
    IncidentClassInfo{.kind = IncidentClass::stalled,
                      .name = "stalled",
                      .title = "No step for long",
                      .gravity = Gravity::standstill,
                      .alert = "GradvaneTrainingStalled",
                      .opens = "no step has ended for `stall_seconds` and 20 median steps",
                      .closes = "the next step",
                      .setting = "300"},
    IncidentClassInfo{.kind = IncidentClass::data_dropped,
                      .name = "data_dropped",
                      .title = "Records lost",
                      .gravity = Gravity::mild,
                      .alert = "GradvaneAgentDroppingData",
                      .opens = "records were overwritten before they could be exported",
                      .closes = "100 steps without"},
    IncidentClassInfo{
        .kind = IncidentClass::agent_cost,
        .name = "agent_cost",
        .title = "Gradvane costs more than it may",
        .gravity = Gravity::mild,
        .alert = "GradvaneAgentOverCostBudget",
        .opens = "Gradvane's hooks take more than `cost_budget` of 100 steps, and 0.5 ms per step, "
                 "twice in a row; the slowest step of each is excluded",
        .closes = "100 steps below 0.8 of it",
        .setting = "0.05"},
    IncidentClassInfo{.kind = IncidentClass::grad_norm_bound,
                      .name = "grad_norm_bound",
                      .title = "Gradient norm above the bound",
                      .gravity = Gravity::training,
                      .alert = "GradvaneGradientNormExploding",
                      .opens = "a step is skipped because its gradient norm is above `skip_norm`",
                      .closes = "10 steps taken",
                      .setting = "no bound"},
    IncidentClassInfo{.kind = IncidentClass::rollback,
                      .name = "rollback",
                      .title = "Rolled back",
                      .gravity = Gravity::training,
                      .alert = "GradvaneTrainingRolledBack",
                      .opens = "the training went back to a snapshot, by a policy or by a call",
                      .closes = "at once",
                      .setting = "no policy"},
    IncidentClassInfo{.kind = IncidentClass::agreement_lost,
                      .name = "agreement_lost",
                      .title = "Ranks do not agree any more",
                      .gravity = Gravity::training,
                      .alert = "GradvaneRankAgreementLost",
                      .opens = "with `ranks: agree`, a rank did not take part in time, or ranks "
                               "are at different steps",
                      .closes = "never: each rank decides alone until the run ends",
                      .setting = "`ranks: off`"},
    IncidentClassInfo{
        .kind = IncidentClass::replica_mismatch,
        .name = "replica_mismatch",
        .title = "Replicas have different weights",
        .gravity = Gravity::training,
        .alert = "GradvaneReplicaMismatch",
        .opens = "ranks that had the same weights at their first step have others now",
        .closes = "the next comparison finds them equal",
        .setting = "no comparison"},
};

inline constexpr int kIncidentClasses = static_cast<int>(kIncidentClassTable.size());

template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<IncidentClass> = [] {
  std::array<std::string_view, kIncidentClassTable.size()> names{};
  std::ranges::transform(kIncidentClassTable, names.begin(), &IncidentClassInfo::name);
  return names;
}();

constexpr const IncidentClassInfo& info_of(IncidentClass kind) noexcept {
  return kIncidentClassTable[index_of(kind)];
}

/// Whether the training goes wrong in a way that it hardly gets out of by itself.
constexpr bool is_divergence(IncidentClass kind) noexcept {
  return kind == IncidentClass::loss_divergence || kind == IncidentClass::random_guess ||
         kind == IncidentClass::grad_exploding;
}

constexpr bool is_nonfinite(IncidentClass kind) noexcept {
  return info_of(kind).gravity == Gravity::nonfinite;
}

constexpr const AlertRule& alert_rule(IncidentClass kind) noexcept {
  return *alert_rule(info_of(kind).alert);
}

static_assert(std::ranges::all_of(kIncidentClassTable, [](const IncidentClassInfo& info) {
  // Names, because with -fsanitize=undefined GCC compares no address with null at compile time.
  return info_of(info.kind).name == info.name && alert_rule(info.alert)->name == info.alert;
}));

}  // namespace gradvane::record
