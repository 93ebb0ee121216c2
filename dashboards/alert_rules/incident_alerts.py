"""Alerts that a detector in the agent decides: the rule only passes them on."""

from __future__ import annotations

from alert_rules.agent_tables import ALERTS
from alert_rules.expressions import SAME, WHO, event, incident, incidents_so_far, latest, number, selector, story
from alert_rules.rule import Alert
from alert_rules.windows import Windows

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


def incident_alert(name: str, windows: Windows) -> Alert:
    row = ALERTS[name]
    return row.alert(windows, incident(row.classes, windows), story(row.classes, windows), *facts(name, windows),
                     incidents_so_far(row.classes, windows))


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
    return row.alert(windows, incident(row.classes, windows) + "\nor\n" + net(sites, windows),
                     story(row.classes, windows), steps)


def nonfinite_alerts(windows: Windows) -> tuple[Alert, Alert]:
    return (nonfinite_alert("TrainingNonFinite", "grad|weight", windows),
            nonfinite_alert("TrainingLossNonFinite", "loss", windows))


def dropping(windows: Windows) -> Alert:
    """Losses that no detector judges count as well: each of them is too many."""
    row = ALERTS["AgentDroppingData"]
    lost = event("gradvane_records_dropped_total", "reason", windows)
    failed = event("gradvane_export_failures_total", "exporter", windows)

    def total(metric: str, sentence: str) -> str:
        return number(f"sum({latest(selector(metric, *SAME), windows)})", sentence)

    return row.alert(
        windows, f"{incident(row.classes, windows)}\nor\n{lost}\nor\n{failed}",
        total("gradvane_records_dropped_total", "Records lost so far: {}."),
        total("gradvane_export_failures_total", "Exports that failed so far: {}."))


def capped(windows: Windows) -> Alert:
    return Alert(
        "AgentSeriesCapped", "warning", "Gradvane leaves series out because of max_series",
        event("gradvane_series_dropped_total", "", windows),
        (f"{WHO} some series do not fit under the limit and are left out.",
         number(latest(selector("gradvane_series_dropped_total", *SAME), windows), "Series left out so far: {}."),
         number(selector("gradvane_series_limit", *SAME), "Limit: {}.")),
        keep_firing=windows.keep_firing)
