"""Alerts that a detector in the agent decides: the rule only passes them on."""

from __future__ import annotations

from alert_rules.agent_tables import ALERTS
from alert_rules.expressions import (
    SAME,
    WHO,
    event,
    incident,
    incidents_so_far,
    latest,
    number,
    of_run,
    of_worst,
    selector,
    story,
)
from alert_rules.rule import Alert
from alert_rules.windows import Windows


def largest(metric: str) -> str:
    return f"max({selector(metric, *SAME)})"


def facts(name: str, windows: Windows) -> tuple[str, ...]:
    """Numbers that a person wants to know with the alert, besides the incident itself."""
    norm = largest("gradvane_grad_norm")
    loss = largest("gradvane_loss")
    health = selector("gradvane_grad_health", *SAME)
    hooks = selector("gradvane_agent_seconds_total", 'where="hooks"', *SAME)
    steps = selector("gradvane_step_duration_seconds_sum", *SAME)
    overflows = selector("gradvane_amp_overflow_steps_total", *SAME)
    skipped = selector("gradvane_skipped_steps_total", *SAME)
    breaches = selector("gradvane_sync_budget_breaches_total", *SAME)
    share = f"sum(rate({hooks}[{windows.event}])) / sum(rate({steps}[{windows.event}]))"
    plain = 'printf "%.4g"'
    queries = {
        "GradvaneGradientNormExploding": (number(norm, "Norm now: {}.", plain),),
        "GradvaneGradientNormDrift": (number(norm, "Norm now: {}.", plain),),
        "GradvaneLossDiverging": (number(loss, "Loss now: {}.", plain),),
        "GradvaneLossBackToRandomGuessing": (number(loss, "Loss now: {}.", plain),),
        "GradvaneLossSpike": (number(loss, "Loss now: {}.", plain),),
        "GradvaneGradientsVanishing": (number(largest("gradvane_params_vanishing"),
                                      "Vanishing parameters now: {}."),),
        "GradvaneGradientHealthLow": (number(f"min({health})", "Score now: {}.", plain),),
        "GradvaneAmpOverflowStreak": (
            number(of_worst(latest(overflows, windows)), "Steps skipped for overflow so far: {}."),
            number(largest("gradvane_loss_scale"), "Loss scale now: {}.", plain)),
        "GradvaneTrainingStepsSkipped": (
            number(of_worst(latest(skipped, windows)), "Steps skipped so far: {}."),),
        "GradvaneHostSyncBudgetExceeded": (
            number(of_worst(latest(breaches, windows)), "Steps over the budget so far: {}."),),
        "GradvaneAgentOverCostBudget": (number(share, "Share of the step time now: {}.", "humanizePercentage"),),
    }
    return queries.get(name, ())


def incident_alert(name: str, windows: Windows) -> Alert:
    row = ALERTS[name]
    return row.alert(windows, of_run(incident(row.classes, windows)), story(row.classes, windows),
                     *facts(name, windows), incidents_so_far(row.classes, windows))


def group_of_alerts(group: str, windows: Windows) -> tuple[Alert, ...]:
    return tuple(incident_alert(row.name, windows) for row in ALERTS.values() if row.group == group)


def net(sites: str, windows: Windows) -> str:
    """For a process whose non-finite detector is switched off: the counter alone.

    Where the detector is on, an incident says which site came first, and the others follow from it.
    """
    steps = selector("gradvane_nonfinite_steps_total", f'site=~"{sites}"')
    incidents = selector("gradvane_incidents_total", 'class=~"nonfinite_.*"')
    bad = event(steps, "site, kind, group", windows)
    return (f"(\n{bad}\n)\nunless ignoring (site, kind, group)\n"
            f"(max without (class) (max_over_time({incidents}[{windows.event}])) > 0)")


def nonfinite_alert(name: str, sites: str, windows: Windows) -> Alert:
    row = ALERTS[name]
    series = selector("gradvane_nonfinite_steps_total", f'site=~"{sites}"', *SAME)
    steps = number(f"max(sum without (kind) ({latest(series, windows)}))", "Bad steps so far: {}.")
    return row.alert(windows, of_run(incident(row.classes, windows) + "\nor\n" + net(sites, windows)),
                     story(row.classes, windows), steps)


def nonfinite_alerts(windows: Windows) -> tuple[Alert, Alert]:
    return (nonfinite_alert("GradvaneTrainingNonFinite", "grad|weight", windows),
            nonfinite_alert("GradvaneTrainingLossNonFinite", "loss", windows))


def dropping(windows: Windows) -> Alert:
    """Losses that no detector judges count as well: each of them is too many."""
    row = ALERTS["GradvaneAgentDroppingData"]
    lost = event("gradvane_records_dropped_total", "reason", windows)
    failed = event("gradvane_export_failures_total", "exporter", windows)

    def total(metric: str, sentence: str) -> str:
        return number(of_worst(latest(selector(metric, *SAME), windows)), sentence)

    return row.alert(
        windows, of_run(f"{incident(row.classes, windows)}\nor\n{lost}\nor\n{failed}"),
        total("gradvane_records_dropped_total", "Records lost so far: {}."),
        total("gradvane_export_failures_total", "Exports that failed so far: {}."))


def capped(windows: Windows) -> Alert:
    return Alert(
        "GradvaneAgentSeriesCapped", "warning", "Gradvane leaves series out because of max_series",
        of_run(event("gradvane_series_dropped_total", "", windows)),
        (f"{WHO} some series do not fit under the limit and are left out.",
         number(of_worst(latest(selector("gradvane_series_dropped_total", *SAME), windows)),
                "Series left out so far: {}."),
         number(largest("gradvane_series_limit"), "Limit: {}.")),
        keep_firing=windows.keep_firing)
