"""Alerts on what a process reports of its own state: stalled, failed, terminated, still without a step or a snapshot."""

from __future__ import annotations

from alert_rules.agent_tables import ALERTS
from alert_rules.expressions import SAME, WHO, first_of, first_rank, number, of_run, one_of, selector
from alert_rules.rule import Alert
from alert_rules.windows import Windows

def stalled(windows: Windows) -> Alert:
    row = ALERTS["GradvaneTrainingStalled"]
    last = selector("gradvane_last_step_timestamp_seconds", *SAME)

    def processes(*run: str) -> str:
        state = selector("gradvane_run_state", 'state="stalled"', *run)
        incident = selector("gradvane_incidents_open", one_of("class", row.classes), *run)
        return f"max without (state) ({state}) == 1\nor\nmax without (class) ({incident}) > 0"

    return row.alert(
        windows, of_run(processes()), first_rank(processes(*SAME)),
        # The smallest are those of the ranks that stand still, if others go on.
        number(f"min({selector('gradvane_run_step', *SAME)})", "Latest step: {}."),
        number(f"time() - min({last})", "It ended {} ago.", "humanizeDuration"))


def ended(name: str, reasons: tuple[str, ...], windows: Windows) -> Alert:
    """The reason is known for as long as the process lives; the state says whether it has restarted since."""
    memory = windows.failed

    def processes(*run: str) -> str:
        reason = selector("gradvane_run_end_info", one_of("reason", reasons), *run)
        state = selector("gradvane_run_state", 'state="failed"', *run)
        return (f"max without (reason) (last_over_time({reason}[{memory}]))\n"
                f"and (max without (state) (last_over_time({state}[{memory}])) == 1)")

    return ALERTS[name].alert(
        windows, of_run(processes()), first_rank(processes(*SAME)),
        number(f"max(last_over_time({selector('gradvane_run_step', *SAME)}[{memory}]))", "Latest step: {}."))


def failed(windows: Windows) -> Alert:
    return ended("GradvaneTrainingRunFailed", ("error", "exit_status", "stopped"), windows)


def terminated(windows: Windows) -> Alert:
    return ended("GradvaneTrainingRunTerminated", ("terminated",), windows)


def not_started(windows: Windows) -> Alert:
    def processes(*run: str) -> str:
        state = selector("gradvane_run_state", 'state="starting"', *run)
        return f"max without (state) ({state}) == 1"

    return Alert(
        "GradvaneTrainingNotStarted", "warning", "A training run has made no first step",
        of_run(processes()),
        (f"{WHO} the process is alive and has made no step since it started.", first_rank(processes(*SAME))),
        hold=windows.not_started_for)


_REFUSED, _COMMITTED = 'result!="committed"', 'result="committed"'


def snapshots_refused(windows: Windows) -> Alert:
    """Some were due and none was taken. A snapshot that is refused now and then is the normal answer to an incident."""
    def counted(result: str, *run: str) -> str:
        return f"increase({selector('gradvane_snapshots_total', result, *run)}[{windows.snapshots}])"

    def ranks(*run: str) -> str:
        return (f"sum without (result) ({counted(_REFUSED, *run)}) > 0\n"
                f"unless sum without (result) ({counted(_COMMITTED, *run)}) > 0\n"
                f"and sum without (result) ({selector('gradvane_snapshots_total', *run)}) >= 0")  # it is alive

    return Alert(
        "GradvaneSnapshotsRefused", "warning", "No snapshot of the training can be taken",
        of_run(ranks()),
        (f"{WHO} no snapshot was taken in the last {windows.snapshots}, and some were refused. A rollback would lose more and more.",
         first_rank(ranks(*SAME)),
         first_of(f"topk(1, {counted(_REFUSED, *SAME)} > 0 and on (instance, rank) ({ranks(*SAME)}))",
                  "Reason: {{ .Labels.result }}.")),
        hold=windows.snapshots_for)


def snapshot_too_old(windows: Windows) -> Alert:
    """None is taken any more, and nothing says why: what is usual is known from the run itself. A run that makes no steps
    has none due."""
    def ranks(*run: str) -> str:
        committed = f"max without (result) ({selector('gradvane_snapshots_total', _COMMITTED, *run)}) >= {windows.snapshots_known}"
        age = selector("gradvane_snapshot_age_seconds", *run)
        usual = f"(time() - {selector('gradvane_run_start_timestamp_seconds', *run)}) / ({committed})"
        refused = f"increase({selector('gradvane_snapshots_total', _REFUSED, *run)}[{windows.snapshots}])"
        return (f"(\n  {age} > {windows.snapshots_late} * {usual}\n"
                f"  or ({committed}) unless {age}\n"  # there is no good one left
                f")\nand increase({selector('gradvane_steps_total', *run)}[{windows.event}]) > 0\n"
                f"unless sum without (result) ({refused}) > 0")  # that is GradvaneSnapshotsRefused

    return Alert(
        "GradvaneSnapshotTooOld", "warning", "No snapshot of the training has been taken for long",
        of_run(ranks()),
        (f"{WHO} the newest good snapshot is more than {windows.snapshots_late} times as old as snapshots of this run become, or gone, "
         "and none was refused. A rollback would lose more and more.",
         first_rank(ranks(*SAME)),
         number(f"max({selector('gradvane_snapshot_age_seconds', *SAME)})", "It is {} old.", "humanizeDuration")),
        hold=windows.snapshots_for)
