"""The alerts on events: what each says when its counter rises.

[What stands in brackets] is only known while the process is there. {skipped} and {overflow} are counters that rise
in a healthy run as well.
"""

from __future__ import annotations

from cases import EventSpec

TOTAL = "gradvane_incidents_total"


def of_class(which: str, alert: str, page: str, severity: str, summary: str, says: str,
             **info: str) -> EventSpec:
    story = "" if not info else " " + says.split("|")[1]
    before, after = says.split("|")[0], says.split("|")[-1]
    text = (f"Run gpt, {{ranks}}: {before}{story}{after}"
            " Incidents of this kind on one rank since it started: {count}.")
    return EventSpec(alert, page, severity, summary, text, ((TOTAL, {"class": which}),), {"class": which},
                     {"class": which, **info})


EVENTS = (
    EventSpec(
        "GradvaneTrainingNonFinite", "training-non-finite", "critical", "NaN or infinity in gradients or weights",
        "Run gpt, {ranks}: gradients or weights are not finite. It began at step 120 on rank {first}: nan in element 4711 of"
        " blocks.1.mlp.weight, in the backward pass, first seen at module blocks.1.mlp. Bad steps so far: {count}.",
        ((TOTAL, {"class": "nonfinite_grad"}),
         # Several series show the same event: one alert.
         ("gradvane_nonfinite_steps_total", {"site": "grad", "kind": "nan", "group": "head"}),
         ("gradvane_nonfinite_steps_total", {"site": "grad", "kind": "nan", "group": "blocks"})),
        {"class": "nonfinite_grad"},
        {"class": "nonfinite_grad", "step": "120", "site": "grad", "kind": "nan", "param": "blocks.1.mlp.weight",
         "element": "4711", "began_in": "backward", "module": "blocks.1.mlp"}),
    EventSpec(
        "GradvaneTrainingLossNonFinite", "training-loss-non-finite", "critical", "The loss is NaN or infinite",
        "Run gpt, {ranks}: the loss is not finite. It began at step 120 on rank {first}: pos_inf in the loss, in the forward"
        " pass. Bad steps so far: {count}.",
        ((TOTAL, {"class": "nonfinite_loss"}),
         ("gradvane_nonfinite_steps_total", {"site": "loss", "kind": "nan", "group": "loss"}),
         # The gradients follow: not an alert of its own.
         ("gradvane_nonfinite_steps_total", {"site": "grad", "kind": "nan", "group": "head"})),
        {"class": "nonfinite_loss"},
        {"class": "nonfinite_loss", "step": "120", "site": "loss", "kind": "pos_inf", "began_in": "forward"}),
    of_class("grad_exploding", "GradvaneGradientNormExploding", "gradient-norm-exploding", "warning",
             "The gradient norm is far above its own history",
             "the gradient norm is far above its own history, or above the bound at which steps are skipped.|It began at step 120 on rank {first}: head.weight.|"
             "[ Norm now: 1.5.]", step="120", param="head.weight"),
    of_class("grad_vanishing", "GradvaneGradientsVanishing", "gradients-vanishing", "warning",
             "Most parameters have next to no gradient",
             "most parameters have gradients below the vanishing threshold.|It began at step 120 on rank {first}.|"
             "[ Vanishing parameters now: 3.]", step="120"),
    of_class("grad_norm_drift", "GradvaneGradientNormDrift", "gradient-norm-drift", "warning",
             "The gradient norm is moving away from its running mean",
             "the gradient norm keeps moving away from its running mean.|It began at step 120 on rank {first}.|[ Norm now: 1.5.]",
             step="120"),
    of_class("grad_health", "GradvaneGradientHealthLow", "gradient-health-low", "warning",
             "The gradient health score is low",
             "the health score of the gradients is low.|It began at step 120 on rank {first}.|[ Score now: 0.125.]", step="120"),
    of_class("dead_group", "GradvaneDeadParameterGroup", "dead-parameter-group", "warning",
             "A parameter group gets no gradient any more",
             "every gradient of a parameter group has been zero, step after step.|"
             "It began at step 120 on rank {first}, group head.|",
             step="120", group="head"),
    of_class("loss_divergence", "GradvaneLossDiverging", "loss-diverging", "warning", "The loss is diverging",
             "several losses in a row lie far above those before.|It began at step 120 on rank {first}.|[ Loss now: 2.25.]",
             step="120"),
    of_class("random_guess", "GradvaneLossBackToRandomGuessing", "loss-back-to-random-guessing", "warning",
             "The model had learned and is back to guessing",
             "the loss is back at the level of random guessing.|It began at step 120 on rank {first}.|[ Loss now: 2.25.]", step="120"),
    of_class("loss_spike", "GradvaneLossSpike", "loss-spike", "info", "One loss far above those before",
             "one loss lies far above those before.|It began at step 120 on rank {first}.|[ Loss now: 2.25.]", step="120"),
    of_class("skipped_steps", "GradvaneTrainingStepsSkipped", "training-steps-skipped", "warning", "Many steps change nothing",
             "a large share of the steps leaves the weights as they were.|It began at step 120 on rank {first}.|"
             " Steps skipped so far: {skipped}.", step="120"),
    of_class("rollback", "GradvaneTrainingRolledBack", "training-rolled-back", "warning",
             "The training went back to a snapshot",
             "a policy or the script took the training back to a snapshot of its state, and the steps since then are lost.|"
             "It began at step 120 on rank {first}.|", step="120"),
    of_class("agreement_lost", "GradvaneRankAgreementLost", "rank-agreement-lost", "warning",
             "Ranks do not decide together any more",
             "ranks were to decide on bad steps together, and each decides alone now: one may skip a step that another takes.|"
             "It began at step 120 on rank {first}.|", step="120"),
    of_class("replica_mismatch", "GradvaneReplicaMismatch", "replica-mismatch", "critical",
             "Ranks that train the same model have different weights",
             "ranks that had the same weights have others now: their gradients are averaged for a model that no rank has.|"
             "It began at step 120 on rank {first}.|", step="120"),
    of_class("amp_overflow", "GradvaneAmpOverflowStreak", "amp-overflow-streak", "warning",
             "The gradient scaler skips step after step",
             "the gradient scaler has skipped many steps in a row because of overflow.|It began at step 120 on rank {first}.|"
             " Steps skipped for overflow so far: {overflow}.[ Loss scale now: 64.]", step="120"),
    of_class("own_sync_budget", "GradvaneHostSyncBudgetExceeded", "host-sync-budget-exceeded", "warning",
             "Steps wait for the GPU more often than they may",
             "steps have more host syncs than their budget.|It began at step 120 on rank {first}.| Steps over the budget so far: 7.",
             step="120"),
    of_class("agent_cost", "GradvaneAgentOverCostBudget", "agent-over-cost-budget", "warning",
             "Gradvane costs more of the training time than it may",
             "Gradvane's hooks take more of the training's time than their budget.|It began at step 120 on rank {first}.|"
             " Share of the step time now: 1%.", step="120"),
    EventSpec(
        "GradvaneAgentDroppingData", "agent-dropping-data", "warning",
        "Gradvane loses records of steps or cannot export them",
        "Run gpt, {ranks}: records were lost or could not be exported. Records lost so far: {count}."
        " Exports that failed so far: 0.",
        (("gradvane_records_dropped_total", {"reason": "ring_overrun"}),)),
    EventSpec(
        "GradvaneAgentSeriesCapped", "agent-series-capped", "warning", "Gradvane leaves series out because of max_series",
        "Run gpt, {ranks}: some series do not fit under the limit and are left out. Series left out so far:"
        " {count}.[ Limit: 2000.]",
        (("gradvane_series_dropped_total", {}),)),
)
