"""Alerts that a detector in the agent decides: the rule only passes them on."""

from __future__ import annotations

from alert_rules.expressions import SAME, WHO, event, incident, incidents_so_far, latest, number, selector, story
from alert_rules.rule import Alert
from alert_rules.windows import Windows

# name, severity, classes, summary, what is said after the run and rank
TABLE: tuple[tuple[str, str, tuple[str, ...], str, str], ...] = (
    ("GradientNormExploding", "warning", ("grad_exploding",),
     "The gradient norm is far above its own history",
     "the gradient norm has left its history by a large factor."),
    ("GradientsVanishing", "warning", ("grad_vanishing",),
     "Most parameters have next to no gradient",
     "most parameters have gradients below the vanishing threshold."),
    ("GradientNormDrift", "warning", ("grad_norm_drift",),
     "The gradient norm is moving away from its running mean",
     "the gradient norm keeps moving away from its running mean."),
    ("LossDiverging", "warning", ("loss_divergence",),
     "The loss is diverging",
     "several losses in a row lie far above those before."),
    ("LossBackToRandomGuessing", "warning", ("random_guess",),
     "The model had learned and is back to guessing",
     "the loss is back at the level of random guessing."),
    ("LossSpike", "info", ("loss_spike",),
     "One loss far above those before",
     "one loss lies far above those before."),
    ("AmpOverflowStreak", "warning", ("amp_overflow",),
     "The gradient scaler skips step after step",
     "the gradient scaler has skipped many steps in a row because of overflow."),
    ("TrainingStepsSkipped", "warning", ("skipped_steps",),
     "Many steps change nothing",
     "a large share of the steps leaves the weights as they were."),
    ("DeadParameterGroup", "warning", ("dead_group",),
     "A parameter group gets no gradient any more",
     "every gradient of a parameter group has been zero, step after step."),
    ("GradientHealthLow", "warning", ("grad_health",),
     "The gradient health score is low",
     "the health score of the gradients is low."),
    ("HostSyncBudgetExceeded", "warning", ("sync_budget", "own_sync_budget"),
     "Steps wait for the GPU more often than they may",
     "steps have more host syncs than their budget."),
    ("AgentOverCostBudget", "warning", ("agent_cost",),
     "Gradvane costs more of the training time than it may",
     "Gradvane's hooks take more of the training's time than their budget."),
)


def facts(name: str, windows: Windows) -> tuple[str, ...]:
    """Numbers that a person wants to know with the alert, besides the incident itself."""
    norm = selector("gradvane_grad_norm", *SAME)
    loss = selector("gradvane_loss", *SAME)
    hooks = selector("gradvane_agent_seconds_total", 'where="hooks"', *SAME)
    steps = selector("gradvane_step_duration_seconds_sum", *SAME)
    overflows = selector("gradvane_amp_overflow_steps_total", *SAME)
    skipped = selector("gradvane_skipped_steps_total", *SAME)
    breaches = selector("gradvane_sync_budget_breaches_total", *SAME)
    share = f"sum(rate({hooks}[{windows.event}])) / sum(rate({steps}[{windows.event}]))"
    plain = 'printf "%.4g"'
    queries = {
        "GradientNormExploding": (number(norm, "Norm now: {}.", plain),),
        "GradientNormDrift": (number(norm, "Norm now: {}.", plain),),
        "LossDiverging": (number(loss, "Loss now: {}.", plain),),
        "LossBackToRandomGuessing": (number(loss, "Loss now: {}.", plain),),
        "LossSpike": (number(loss, "Loss now: {}.", plain),),
        "GradientsVanishing": (number(selector("gradvane_params_vanishing", *SAME),
                                      "Vanishing parameters now: {}."),),
        "GradientHealthLow": (number(selector("gradvane_grad_health", *SAME), "Score now: {}.", plain),),
        "AmpOverflowStreak": (
            number(latest(overflows, windows), "Steps skipped for overflow so far: {}."),
            number(selector("gradvane_loss_scale", *SAME), "Loss scale now: {}.", plain)),
        "TrainingStepsSkipped": (
            number(f"sum({latest(skipped, windows)})", "Steps skipped so far: {}."),),
        "HostSyncBudgetExceeded": (
            number(f"sum({latest(breaches, windows)})", "Steps over the budget so far: {}."),),
        "AgentOverCostBudget": (number(share, "Share of the step time now: {}.", "humanizePercentage"),),
    }
    return queries.get(name, ())


def incident_alerts(windows: Windows) -> dict[str, Alert]:
    return {
        name: Alert(name, severity, summary, incident(classes, windows),
                    (f"{WHO} {says}", story(classes, windows), *facts(name, windows),
                     incidents_so_far(classes, windows)),
                    keep_firing=windows.keep_firing)
        for name, severity, classes, summary, says in TABLE
    }


def net(sites: str, windows: Windows) -> str:
    """For a process whose non-finite detector is switched off: the counter alone.

    Where the detector is on, an incident says which site came first, and the others follow from it.
    """
    steps = selector("gradvane_nonfinite_steps_total", f'site=~"{sites}"')
    incidents = selector("gradvane_incidents_total", 'class=~"nonfinite_.*"')
    bad = event(steps, "site, kind, group", windows)
    return (f"(\n{bad}\n)\nunless ignoring (site, kind, group)\n"
            f"(max without (class) (max_over_time({incidents}[{windows.event}])) > 0)")


def nonfinite_alerts(windows: Windows) -> tuple[Alert, Alert]:
    weights = ("nonfinite_grad", "nonfinite_weight")
    loss = ("nonfinite_loss",)

    def steps(sites: str) -> str:
        series = selector("gradvane_nonfinite_steps_total", f'site=~"{sites}"', *SAME)
        return number(f"max(sum without (kind) ({latest(series, windows)}))", "Bad steps so far: {}.")

    return (
        Alert("TrainingNonFinite", "critical", "NaN or infinity in gradients or weights",
              incident(weights, windows) + "\nor\n" + net("grad|weight", windows),
              (f"{WHO} gradients or weights are not finite.", story(weights, windows), steps("grad|weight")),
              keep_firing=windows.keep_firing),
        Alert("TrainingLossNonFinite", "critical", "The loss is NaN or infinite",
              incident(loss, windows) + "\nor\n" + net("loss", windows),
              (f"{WHO} the loss is not finite.", story(loss, windows), steps("loss")),
              keep_firing=windows.keep_firing),
    )


def dropping(windows: Windows) -> Alert:
    """Losses that no detector judges count as well: each of them is too many."""
    lost = event("gradvane_records_dropped_total", "reason", windows)
    failed = event("gradvane_export_failures_total", "exporter", windows)

    def total(metric: str, sentence: str) -> str:
        return number(f"sum({latest(selector(metric, *SAME), windows)})", sentence)

    return Alert(
        "AgentDroppingData", "warning", "Gradvane loses records of steps or cannot export them",
        f"{incident(('data_dropped',), windows)}\nor\n{lost}\nor\n{failed}",
        (f"{WHO} records were lost or could not be exported.",
         total("gradvane_records_dropped_total", "Records lost so far: {}."),
         total("gradvane_export_failures_total", "Exports that failed so far: {}.")),
        keep_firing=windows.keep_firing)


def capped(windows: Windows) -> Alert:
    return Alert(
        "AgentSeriesCapped", "warning", "Gradvane leaves series out because of max_series",
        event("gradvane_series_dropped_total", "", windows),
        (f"{WHO} some series do not fit under the limit and are left out.",
         number(latest(selector("gradvane_series_dropped_total", *SAME), windows), "Series left out so far: {}."),
         number(selector("gradvane_series_limit", *SAME), "Limit: {}.")),
        keep_firing=windows.keep_firing)
