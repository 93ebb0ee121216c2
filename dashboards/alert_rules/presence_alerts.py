"""Alerts on processes that are not there: down, missing among the ranks, vanished, never seen."""

from __future__ import annotations

from alert_rules.expressions import OF_RUN, SAME, WHO, asked, first_of, number, of_run, selector
from alert_rules.rule import Alert
from alert_rules.windows import Windows

ALIVE = 'state=~"starting|running|stalled"'
OVER = 'state=~"finished|failed"'


def target_down(windows: Windows, jobs: str) -> Alert:
    """A process that is gone takes its series along, so what is known is what was scraped before.

    Of a target that had several runs, the latest one counts; one that ended properly is no alert.
    """
    memory = windows.down_memory

    def processes(*run: str) -> str:
        start = selector("gradvane_run_start_timestamp_seconds", *run)
        state = selector("gradvane_run_state", OVER, *run)
        return (f"topk by (job, instance) (1, last_over_time({start}[{memory}]))\n"
                "and on (job, instance) (up == 0)\n"
                "unless on (job, instance, run, rank)\n"
                f"(last_over_time({state}[{memory}]) == 1)")

    expr = of_run(processes())
    if jobs:
        known = f"last_over_time(gradvane_run_start_timestamp_seconds[{memory}])"
        expr += f'\nor\ncount by (job) (\nup{{job=~"{jobs}"}} == 0\nunless on (job, instance) {known}\n)'
    return Alert(
        "GradvaneTrainingTargetDown", "critical", "A training process does not answer any more",
        expr,
        ("{{ if $labels.run }}" + WHO + "{{ else }}Job {{ $labels.job }}, {{ $value }} targets:{{ end }}",
         "no answer to scrapes.",
         first_of(processes(*SAME), "First rank: {{ .Labels.rank }}, at {{ .Labels.instance }}."),
         number(f"max(last_over_time({selector('gradvane_run_step', *SAME)}[{memory}]))", "Latest step seen: {}.")),
        hold=windows.down_for)


def ranks_missing(windows: Windows) -> Alert:
    """Also where the target is gone with the process, as in Kubernetes. Nothing while no rank is there: that is a run
    that has ended, or GradvaneRunVanished. A rank that has finished is not missing for as long as it is remembered, an
    hour: at a good end rank 0 may work on. Of a run that is started again with new targets, it hides a missing rank."""
    alive = f"gradvane_run_state{{{ALIVE}}} == 1"
    finished = f'last_over_time(gradvane_run_state{{state="finished"}}[{windows.vanished}]) == 1'
    ranks = f"count by ({OF_RUN}) (count by ({OF_RUN}, rank) ({alive} or {finished}))"
    size = f"max({selector('gradvane_world_size', *SAME)})"
    return Alert(
        "GradvaneRanksMissing", "critical", "Ranks of a training run are missing",
        f"max by ({OF_RUN}) (gradvane_world_size)\n- {ranks}\n> 0\nand on ({OF_RUN}) {alive}",
        ("Run {{ $labels.run }}: {{ $value }}{{- with " + asked(size) + " }} of its"
         " {{ . | first | value }}{{ end }} ranks {{ if eq $value 1.0 }}does{{ else }}do{{ end }} not report.",),
        hold=windows.missing_for)


def name_shared(windows: Windows) -> Alert:
    """Two processes with one run and rank are two trainings. One job scrapes a process once."""
    return Alert(
        "GradvaneRunNameShared", "warning", "Two trainings have one name",
        f"max by ({OF_RUN}) (count by ({OF_RUN}, rank) (gradvane_run_info)) > 1",
        ("Run {{ $labels.run }}: {{ $value }} processes report as one rank. Their numbers are mixed in charts and rules.",
         first_of(f"count by (job, run, rank) ({selector('gradvane_run_info', *SAME)}) > 1",
                  "First rank: {{ .Labels.rank }}.")),
        hold=windows.missing_for)


def run_vanished(windows: Windows) -> Alert:
    """All of a run is gone, with its targets, and no rank reported an end.

    A target that is still listed is GradvaneTrainingTargetDown's. A run goes by its name alone where it may have come
    back: a restart may have another job, instance or pod.
    """
    memory = windows.vanished
    return Alert(
        "GradvaneRunVanished", "critical", "A training run is gone without an end",
        of_run(f"last_over_time(gradvane_run_state{{{ALIVE}}}[{memory}]) == 1\n"
               "unless on (job, instance) (up == 0)")
        + "\nunless on (run) gradvane_run_state\n"
        f"unless on (run) (last_over_time(gradvane_run_state{{{OVER}}}[{memory}]) == 1)",
        (f"{WHO} all series are gone, and no rank reported an end.",
         number(f"max(last_over_time({selector('gradvane_run_step', *SAME)}[{memory}]))", "Latest step seen: {}.")),
        hold=windows.vanished_for)


def absent(windows: Windows, run: str) -> Alert:
    return Alert(
        "GradvaneTrainingTargetAbsent", "critical", "A run that should be there is not",
        f'absent(gradvane_run_info{{run=~"{run}"}})',
        (f"No process of a run that matches {run} is scraped.",), hold=windows.absent_for)
