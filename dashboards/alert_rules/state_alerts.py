"""Alerts on the state of the process: stalled, failed, gone, slower than the others."""

from __future__ import annotations

from alert_rules.agent_tables import ALERTS
from alert_rules.expressions import SAME, WHO, number, one_of, selector
from alert_rules.rule import Alert
from alert_rules.windows import Windows

STEP = number(selector("gradvane_run_step", *SAME), "Latest step: {}.")


def stalled(windows: Windows) -> Alert:
    row = ALERTS["TrainingStalled"]
    last = selector("gradvane_last_step_timestamp_seconds", *SAME)
    return row.alert(
        windows,
        'max without (state) (gradvane_run_state{state="stalled"}) == 1\nor\n'
        f"max without (class) (gradvane_incidents_open{{{one_of('class', row.classes)}}}) > 0",
        STEP, number(f"time() - {last}", "It ended {} ago.", "humanizeDuration"))


def failed(windows: Windows) -> Alert:
    return ALERTS["TrainingRunFailed"].alert(
        windows,
        f'max without (state) (last_over_time(gradvane_run_state{{state="failed"}}[{windows.failed}])) == 1',
        number(f"last_over_time({selector('gradvane_run_step', *SAME)}[{windows.failed}])", "Latest step: {}."))


def target_down(windows: Windows, jobs: str) -> Alert:
    """A process that is gone takes its series along, so what is known is what was scraped before.

    Of a target that had several runs, the latest one counts; one that ended properly is no alert.
    """
    memory = windows.down_memory
    start = f"last_over_time(gradvane_run_start_timestamp_seconds[{memory}])"
    expr = (
        f"topk by (job, instance) (1, {start})\n"
        "and on (job, instance) (up == 0)\n"
        "unless on (job, instance, run, rank)\n"
        f'(last_over_time(gradvane_run_state{{state=~"finished|failed"}}[{memory}]) == 1)'
    )
    if jobs:
        expr = f'(\n{expr}\n)\nor\n(\nup{{job=~"{jobs}"}} == 0\nunless on (job, instance) {start}\n)'
    return Alert(
        "TrainingTargetDown", "critical", "A training process does not answer any more",
        expr,
        ("{{ if $labels.run }}Run {{ $labels.run }}, rank {{ $labels.rank }}{{ else }}Job {{ $labels.job }}{{ end }}:",
         "{{ $labels.instance }} does not answer scrapes.",
         number(f"last_over_time({selector('gradvane_run_step', *SAME)}[{memory}])", "Latest step seen: {}.")),
        hold=windows.down_for)


def straggler(windows: Windows) -> Alert:
    """Who keeps the others waiting. Three ways to see it, each as a share of the run's typical step.

    Ranks that join their gradients each step have the same step time, however slow one of them is: they wait
    for it. So besides the step time (ranks that do not join each step) what counts is time of a rank's own:
    in the data phase, and not blocked in host syncs, in which the others spend their waiting. The median of
    the run's ranks is what is normal.
    """
    rate = windows.rate
    mean = (f"(rate(gradvane_step_duration_seconds_sum[{rate}])"
            f" / (rate(gradvane_step_duration_seconds_count[{rate}]) > 0) > 0)")
    steps = f"(rate(gradvane_steps_total[{rate}]) > 0)"
    data = f'(sum without (phase) (rate(gradvane_phase_seconds_total{{phase="data"}}[{rate}])) / {steps} >= 0)'
    blocked = ('sum without (kind, origin) '
               f'(rate(gradvane_host_sync_seconds_total{{origin="training"}}[{rate}]))')
    blind = f'sum without (state) (rate(gradvane_sync_coverage_seconds_total{{state="blind"}}[{rate}]))'
    own = f"({mean} - {blocked} / {steps} unless {blind} > 0)"

    def delay(seconds: str) -> str:
        typical = "on (job, run) group_left () quantile by (job, run) (0.5, {})"
        return (f"({seconds}\n  - {typical.format(seconds)})\n"
                f"  / {typical.format(mean)}\n  > {windows.straggler_share}")

    return Alert(
        "StragglerRank", "warning", "One rank keeps the others of its run waiting",
        "\nor\n".join(delay(seconds) for seconds in (mean, data, own)),
        (f"{WHO} compared with the run's other ranks, it adds {{{{ $value | humanizePercentage }}}}"
         " of a typical step to every step.",),
        hold=windows.straggler_for)


def absent(windows: Windows, run: str) -> Alert:
    return Alert(
        "TrainingTargetAbsent", "critical", "A run that should be there is not",
        f'absent(gradvane_run_info{{run=~"{run}"}})',
        (f"No process of a run that matches {run} is scraped.",), hold=windows.absent_for)
