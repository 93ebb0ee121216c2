"""The alerts on states of the process and on its place among the ranks."""

from __future__ import annotations

from cases import Case, Check, Spec, ranks_of
from timeline import LENGTH, Series, during, ended, healthy, name, rising

Parts = tuple[tuple[float, object], ...]


def in_state(state: str, *parts: tuple[float, object], rank: int = 0) -> Series:
    """A process that is in `state` where parts say 1, and running where they say 0."""
    others = tuple((minutes, 1 - value if isinstance(value, int) else value) for minutes, value in parts)
    return healthy(rank) | {name("gradvane_run_state", rank, state=state): during(*parts),
                            name("gradvane_run_state", rank, state="running"): during(*others)}


def stopped(series: Series, rank: int, minutes: float) -> Series:
    """No step after so many minutes."""
    count = round(minutes * 2)
    still = LENGTH - minutes
    for metric, first, each in (("gradvane_run_step", 10, 10), ("gradvane_last_step_timestamp_seconds", 0, 30)):
        key = name(metric, rank)
        series[key] = rising(minutes, first, each) + " " + during((still, first + each * (count - 1)))
    return series


def stalled(rank: int = 0) -> Series:
    """Its last step is that of minute 9.5; stalled from 14 to 20, then it goes on."""
    return stopped(in_state("stalled", (14, 0), (6, 1), (40, 0), rank=rank), rank, 10)


SAYS_STALLED = ("Run gpt, {ranks}: the process is alive and makes no steps. First rank: {first}. Latest step: 200."
                " It ended 5m 30s ago.")


def stalled_spec() -> Spec:
    def fires(minute: float, ago: str, ranks: tuple[int, ...] = (0,)) -> Check:
        return Check(minute, ranks, SAYS_STALLED.replace("5m 30s", ago))

    late = stopped(in_state("stalled", (14, None), (6, 1), (40, 0)), 0, 10)
    incident = stopped(healthy(), 0, 10) | {
        name("gradvane_incidents_total", 0, **{"class": "stalled"}): during((14, 0), (46, 1)),
        name("gradvane_incidents_open", 0, **{"class": "stalled"}): during((14, 0), (6, 1), (40, 0))}
    not_a_number = in_state("stalled", (LENGTH, "NaN"))
    return Spec("GradvaneTrainingStalled", "training-stalled", "critical", "No optimizer step for long", (
        Case("zero_initialised", stalled(), (Check(13.5), fires(15, "5m 30s"))),
        Case("late_series", late, (Check(13.5), fires(15, "5m 30s"), Check(21))),
        Case("by_its_incident", incident, (Check(13.5), fires(15, "5m 30s"), Check(21))),
        Case("healthy", healthy(), (Check(5), Check(20), Check(50))),
        Case("clears", stalled(), (fires(19, "9m 30s"), Check(20.5), Check(40))),
        # A new process: its counters start at 0, its state is running.
        Case("counter_restart", stalled() | {
            name("gradvane_steps_total"): during((30, 200), (30, 0)),
            name("gradvane_incidents_total", 0, **{"class": "stalled"}): during((14, 0), (16, 1), (30, 0))},
            (fires(15, "5m 30s"), Check(29), Check(31), Check(50))),
        Case("nan_gauge", not_a_number, (Check(5), Check(40))),
        Case("stale_end", ended(stalled(), 16), (fires(15, "5m 30s"), Check(16.5), Check(30))),
        Case("many_ranks", ranks_of(4) | stalled(1) | stalled(3), (Check(13.5), fires(15, "5m 30s", (1, 3)))),
    ))


def because(reason: str, *parts: tuple[float, object], rank: int = 0) -> Series:
    return {name("gradvane_run_end_info", rank, reason=reason): during(*parts)}


def failing(reason: str, rank: int = 0, restarts: bool = False) -> Series:
    """Failed in minute 20, scraped once more, then gone; or back on its port in minute 24."""
    back: Parts = ((4, "stale"), (35.5, 0)) if restarts else ((39.5, "stale"),)
    series = in_state("failed", (20, 0), (0.5, 1), *back, rank=rank)
    series |= because(reason, (20, None), (0.5, 1), (39.5, "stale"), rank=rank)
    if restarts:
        return series
    gone = ended(series, 20.5)
    gone[f'up{{job="gradvane",instance="host-{rank}:9464"}}'] = during((20.5, 1), (39.5, 0))
    return gone


def end_spec(alert: str, page: str, severity: str, summary: str, says: str, reasons: tuple[str, ...],
             others: tuple[str, ...]) -> Spec:
    def fires(minute: float, ranks: tuple[int, ...] = (0,), step: int = 410) -> Check:
        return Check(minute, ranks, f"Run gpt, {{ranks}}: {says} First rank: {{first}}. Latest step: {step}.")

    reason = reasons[0]
    ends: Parts = ((20, None), (40, 1))
    late = ended(in_state("failed", *ends) | because(reason, *ends), 20.5)
    known = ended(in_state("failed", (20, 0), (40, 1)) | because(reason, *ends), 20.5)
    not_a_number = in_state("failed", (LENGTH, "NaN")) | because(reason, (LENGTH, 1))
    return Spec(alert, page, severity, summary, (
        Case("zero_initialised", failing(reason), (Check(19.5), fires(21), fires(29))),
        Case("late_series", late, (Check(19.5), fires(21), Check(31))),
        Case("healthy", healthy(), (Check(5), Check(20), Check(50))),
        Case("clears", failing(reason), (fires(29), Check(31), Check(59))),
        Case("counter_restart", failing(reason, restarts=True), (fires(23, step=470), Check(24.5), Check(50))),
        Case("nan_gauge", not_a_number, (Check(5), Check(40))),
        Case("stale_end", known, (fires(22), Check(31))),
        Case("many_ranks", ranks_of(4) | failing(reason, 1) | failing(reason, 3),
             (Check(19.5), fires(21, (1, 3), step=430))),
        *(Case(f"by_{other}", failing(other), (Check(19.5), fires(21))) for other in reasons[1:]),
        *(Case(f"not_by_{other}", failing(other), (Check(19.5), Check(21), Check(29))) for other in others),
    ))


def failed_spec() -> Spec:
    return end_spec("GradvaneTrainingRunFailed", "training-run-failed", "critical", "A training run has failed",
                    "the process reported that the run failed, by an exception or an exit status, or that a policy of"
                    " Gradvane stopped it.",
                    ("error", "exit_status", "stopped"), ("terminated", "interrupted"))


def terminated_spec() -> Spec:
    return end_spec("GradvaneTrainingRunTerminated", "training-run-terminated", "warning",
                    "A training run was terminated",
                    "SIGTERM ended the process, as a scheduler or a preemption does.",
                    ("terminated",), ("error", "exit_status", "interrupted", "stopped"))


def not_started_spec() -> Spec:
    def fires(minute: float, ranks: tuple[int, ...] = (0,)) -> Check:
        return Check(minute, ranks, "Run gpt, {ranks}: the process is alive and has made no step since it started."
                     " First rank: {first}.")

    def starting(*parts: tuple[float, object], rank: int = 0) -> Series:
        return in_state("starting", *parts, rank=rank)

    slow: Parts = ((45, 1), (15, 0))
    return Spec("GradvaneTrainingNotStarted", "training-not-started", "warning",
                "A training run has made no first step", (
        Case("zero_initialised", starting(*slow), (Check(29), fires(31))),
        Case("late_series", starting((10, None), (40, 1), (10, 0)), (Check(39), fires(41))),
        Case("healthy", healthy(), (Check(5), Check(31), Check(50))),
        Case("clears", starting(*slow), (fires(44), Check(46))),
        Case("counter_restart", starting((20, 1), (1, "stale"), (39, 1)), (Check(31), Check(50), fires(52))),
        Case("nan_gauge", starting((LENGTH, "NaN")), (Check(31), Check(50))),
        Case("stale_end", ended(starting((LENGTH, 1)), 40), (fires(35), Check(41))),
        Case("many_ranks", ranks_of(4) | starting(*slow, rank=1) | starting(*slow, rank=3),
             (Check(29), fires(31, (1, 3)))),
        Case("usual", starting((10, 1), (50, 0)), (Check(9), Check(31))),
    ))


def killed(rank: int = 0, after: float = 20, series: Series | None = None) -> Series:
    """By SIGKILL: everything is stale, and the target still listed."""
    gone = ended(series if series is not None else healthy(rank), after)
    gone[f'up{{job="gradvane",instance="host-{rank}:9464"}}'] = during((after, 1), (LENGTH - after, 0))
    return gone


def back_again(minute: float) -> Series:
    """Killed in minute 20, back on its port with a new start."""
    series = {key: " ".join((during((20, 1 if "start" in key or "state" in key else 0)), "stale",
                             during((minute - 20.5, None), (LENGTH - minute, 1 if "start" in key else 0))))
              for key in (name("gradvane_run_start_timestamp_seconds"), name("gradvane_run_step"),
                          *(name("gradvane_run_state", state=state) for state in ("finished", "failed")))}
    series[name("gradvane_run_start_timestamp_seconds")] = " ".join((
        during((20, 100)), "stale", during((minute - 20.5, None), (LENGTH - minute, 1500))))
    series[name("gradvane_run_step")] = during((20, 400), (minute - 20, "stale"), (LENGTH - minute, 420))
    for state in ("finished", "failed"):
        series[name("gradvane_run_state", state=state)] = during(
            (20, 0), (minute - 20, "stale"), (LENGTH - minute, 0))
    series['up{job="gradvane",instance="host-0:9464"}'] = during((20, 1), (minute - 20, 0), (LENGTH - minute, 1))
    return series


def replaced() -> Series:
    """Another run on the same port, from minute 10; it is killed in minute 20. Only that one is told of."""
    first = ended(healthy(), 10)
    other = name("gradvane_run_start_timestamp_seconds").replace('run="gpt"', 'run="old"')
    first[other] = first.pop(name("gradvane_run_start_timestamp_seconds"))
    second = killed()
    second[name("gradvane_run_start_timestamp_seconds")] = during((10, None), (10, 700), (0.5, "stale"))
    return first | second


def finished(state: str, scraped: bool = True) -> Series:
    """It ended by itself in minute 20, and its last scrape says so."""
    return killed(series=in_state(state, (19.5, 0), (40.5, int(scraped))))


def keeping(committed: str, refused: str, rank: int = 0, result: str = "memory") -> Series:
    """Snapshots so far, committed and refused."""
    def counter(result: str) -> str:
        return name("gradvane_snapshots_total", rank, result=result)

    others = {counter(other): during((LENGTH, 0)) for other in ("incident", "nonfinite", "written") if other != result}
    return healthy(rank) | others | {counter("committed"): committed, counter(result): refused}


def snapshots_spec() -> Spec:
    def fires(minute: float, reason: str = "memory", ranks: str = "1 rank", first: int = 0) -> Check:
        return Check(minute, (0,), f"Run gpt, {ranks}: no snapshot was taken in the last 30m, and some were refused. A rollback "
                     f"would lose more and more. First rank: {first}. Reason: {reason}.")

    never, each_minute = during((LENGTH, 0)), rising(LENGTH, 0, 0.5)
    until_ten = rising(10, 0, 0.5) + " " + during((50, 9.5))
    from_ten = during((10, 0)) + " " + rising(50, 0, 0.5)
    again = rising(10, 0, 0.5) + " " + during((35, 9.5)) + " " + rising(15, 10, 0.5)
    restart = rising(10, 0, 0.5) + " " + during((30, 9.5)) + " " + rising(20, 0, 0.5)
    four = ranks_of(4) | keeping(never, each_minute, rank=1) | keeping(never, each_minute, rank=3)
    return Spec("GradvaneSnapshotsRefused", "snapshots-refused", "warning", "No snapshot of the training can be taken", (
        Case("zero_initialised", keeping(never, each_minute), (Check(4), fires(7), fires(50))),
        Case("late_series", keeping(during((20, None), (40, 0)), during((20, None)) + " " + rising(40, 0, 0.5)),
             (Check(21), fires(27))),
        Case("healthy", keeping(each_minute, never), (Check(5), Check(20), Check(50))),
        Case("clears", keeping(again, from_ten), (fires(44.5), Check(47))),
        Case("counter_restart", keeping(restart, during((LENGTH, 4))), (Check(35), Check(50))),
        Case("nan_gauge", keeping(during((LENGTH, "NaN")), never), (Check(20), Check(50))),
        Case("stale_end", ended(keeping(never, each_minute), 30), (fires(20), Check(36))),
        Case("many_ranks", four, (Check(4), fires(7, ranks="2 ranks", first=1))),
        # The reason is that of a rank that takes none, however often another one was refused.
        Case("another_rank_is_refused_more_often", ranks_of(4) | keeping(never, each_minute, rank=1)
             | keeping(each_minute, rising(LENGTH, 0, 5), rank=2, result="incident"), (fires(50, first=1),)),
        # Refused while an incident was open, and taken again: that is as it should be.
        Case("now_and_then", keeping(each_minute, during((20, 0), (40, 6)), result="incident"), (Check(22), Check(50))),
        Case("none_is_due", keeping(until_ten, never), (Check(30), Check(59))),
        Case("no_policy", healthy(), (Check(5), Check(50))),
    ))


def aged(committed: str, age: str, rank: int = 0) -> Series:
    return keeping(committed, during((LENGTH, 0)), rank) | {name("gradvane_snapshot_age_seconds", rank): age}


def too_old_spec() -> Spec:
    """One a minute up to minute 30, and none since: from minute 44 on the last one is ten times as old as they become."""
    def fires(minute: float, old: str, ranks: str = "1 rank", first: int = 0) -> Check:
        return Check(minute, (0,), f"Run gpt, {ranks}: the newest good snapshot is more than 10 times as old as snapshots of this run "
                     f"become, or gone, and none was refused. A rollback would lose more and more. First rank: {first}.{old and f' It is {old} old.'}")

    usual = during((LENGTH, 40))
    until_30, grows = rising(30, 0, 0.5) + " " + during((30, 29.5)), during((30, 30)) + " " + rising(30, 30, 30)
    ends = aged(until_30, grows)
    again = aged(rising(30, 0, 0.5) + " " + during((22, 29.5)) + " " + rising(8, 30, 0.5),
                 during((30, 30)) + " " + rising(22, 30, 30) + " " + during((8, 30)))
    few = aged(rising(10, 0, 0.5) + " " + during((50, 9.5)), during((10, 30)) + " " + rising(50, 30, 30))
    born_late = aged(during((5, None)) + " " + rising(25, 0, 0.5) + " " + during((30, 24.5)),
                     during((5, None), (25, 30)) + " " + rising(30, 30, 30))
    refused = keeping(until_30, during((30, 0)) + " " + rising(30, 0, 0.5)) | {name("gradvane_snapshot_age_seconds"): grows}
    restart = ends | {name("gradvane_run_start_timestamp_seconds"): during((50, 100), (10, 3000)),
                      name("gradvane_snapshots_total", result="committed"): rising(30, 0, 0.5) + " " + during((20, 29.5), (10, 1)),
                      name("gradvane_snapshot_age_seconds"): during((30, 30)) + " " + rising(20, 30, 30) + " " + during((10, 30))}
    return Spec("GradvaneSnapshotTooOld", "snapshot-too-old", "warning", "No snapshot of the training has been taken for long", (
        Case("zero_initialised", ends, (Check(44), Check(48), fires(51, "21m 30s"), fires(58, "28m 30s"))),
        Case("late_series", born_late, (Check(50), fires(58, "28m 30s"))),
        Case("healthy", aged(rising(LENGTH, 0, 0.5), usual), (Check(5), Check(20), Check(50))),
        Case("clears", again, (fires(51, "21m 30s"), Check(53), Check(58))),
        Case("counter_restart", restart, (fires(49.5, "20m 0s"), Check(51), Check(58))),
        Case("nan_gauge", aged(until_30, during((LENGTH, "NaN"))), (Check(20), Check(50))),
        Case("stale_end", ended(ends, 52), (fires(51, "21m 30s"), Check(58))),
        Case("many_ranks", ranks_of(4) | aged(until_30, grows, 1) | aged(until_30, grows, 3),
             (Check(44), fires(51, "21m 30s", "2 ranks", 1))),
        Case("no_steps_are_taken", ends | {name("gradvane_steps_total"): rising(30, 10, 10) + " " + during((30, 600))}, (Check(58),)),
        Case("refusals_are_another_alert", refused, (Check(51), Check(58))),
        # Their bytes had changed, or they were of a training that had gone bad.
        Case("none_is_good_any_more", keeping(until_30, during((LENGTH, 0))) | {name("gradvane_snapshot_age_seconds"): during((40, 30), (20, "stale"))},
             (Check(39), fires(46, ""))),
        Case("too_few_to_know", few, (Check(30), Check(58))),
        Case("no_policy", healthy(), (Check(5), Check(50))),
    ))


def down_spec() -> Spec:
    def fires(minute: float, ranks: tuple[int, ...] = (0,), step: int = 400) -> Check:
        return Check(minute, ranks, "Run gpt, {ranks}: no answer to scrapes. First rank: {first}, at"
                     f" host-{{first}}:9464. Latest step seen: {step}.")

    born_late = killed(after=20) | {name("gradvane_run_start_timestamp_seconds"): during(
        (19, None), (1, 100), (40, "stale"))}
    nan = healthy() | {name("gradvane_run_start_timestamp_seconds"): during((LENGTH, "NaN"))}
    return Spec("GradvaneTrainingTargetDown", "training-target-down", "critical",
                "A training process does not answer any more", (
        Case("zero_initialised", killed(), (Check(20), Check(20.5), fires(21.5), fires(59))),
        Case("late_series", born_late, (Check(20), fires(21.5))),
        Case("healthy", healthy(), (Check(5), Check(20), Check(50))),
        Case("clears", back_again(30), (fires(29), Check(30.5), Check(50))),
        Case("counter_restart", back_again(20.5), (Check(21), Check(30))),  # back before anybody is told
        Case("nan_gauge", killed(series=nan), (Check(19), fires(21.5))),
        # The target is gone too: taken off the list.
        Case("stale_end", ended(healthy(), 20), (Check(19), Check(22), Check(50))),
        Case("many_ranks", ranks_of(4) | killed(1) | killed(3), (Check(20), fires(21.5, (1, 3), step=440))),
        Case("ended_by_itself", finished("finished"), (Check(19), Check(22), Check(50))),
        Case("failure_is_another_alert", finished("failed"), (Check(19), Check(22), Check(50))),
        Case("latest_run_of_a_port", replaced(), (Check(10), Check(20), fires(22))),
    ))


def slow_rank(rank: int, kind: str, begins: float = 0, until: float = LENGTH) -> Series:
    """One rank that is slower than the others in a way, between two times.

    step: 6 seconds a step instead of 3, alone. data: its loader takes 2 seconds of the 3. own: it waits for
    the GPU half a second less than... the others' 0.5, so 3 seconds are its own and 2.5 theirs. work: the others wait
    for it a second of the 3.
    """
    series = healthy(rank)

    def piecewise(first: float, normal: float, slow: float) -> str:
        value, words = first, []
        for index in range(round(LENGTH * 2)):
            words.append(f"{value:g}")
            value += slow if begins * 2 <= index < until * 2 else normal
        return " ".join(words)

    if kind == "step":
        for metric, first in (("gradvane_run_step", 10), ("gradvane_steps_total", 10),
                              ("gradvane_step_duration_seconds_count", 10)):
            series[name(metric, rank)] = piecewise(first, 10, 5)
        series[name("gradvane_phase_seconds_total", rank, phase="data")] = piecewise(1, 1, 0.5)
    elif kind == "data":
        series[name("gradvane_phase_seconds_total", rank, phase="data")] = piecewise(1, 1, 20)
    elif kind == "own":
        for other in range(4):
            each = 0 if other == rank else 20
            series[name("gradvane_host_sync_seconds_total", other, kind="d2h_read", origin="training")] = (
                piecewise(3, 3, each))
    elif kind == "work":
        for other in range(4):
            each = 0 if other == rank else 10
            series[name("gradvane_rank_wait_seconds_total", other)] = piecewise(1, 1, each)
    return series


def straggler_spec() -> Spec:
    def fires(minute: float, share: str, ranks: tuple[int, ...] = (2,)) -> Check:
        return Check(minute, ranks, "Run gpt: one rank makes every step "
                     f"{share} longer than the others do. It is rank {{first}}.")

    def among(*slow: Series) -> Series:
        together = ranks_of(4)
        for series in slow:
            together |= series
        return together

    late = {key: during((20, None)) + " " + values for key, values in slow_rank(2, "step").items()}
    restart = among(slow_rank(2, "step"))
    restart[name("gradvane_steps_total", 2)] = rising(30, 10, 5) + " " + rising(30, 0, 5)
    restart[name("gradvane_step_duration_seconds_count", 2)] = rising(30, 10, 5) + " " + rising(30, 0, 5)
    restart[name("gradvane_step_duration_seconds_sum", 2)] = rising(30, 30, 30) + " " + rising(30, 0, 30)
    nan = among(slow_rank(2, "step"))
    nan[name("gradvane_step_duration_seconds_sum", 1)] = during((LENGTH, "NaN"))
    blind = among(slow_rank(2, "own")) | {name("gradvane_sync_coverage_seconds_total", 2, state="blind"):
                                          rising(LENGTH, 0, 30)}
    return Spec("GradvaneStragglerRank", "straggler-rank", "warning", "One rank keeps the others of its run waiting", (
        Case("zero_initialised", among(slow_rank(2, "step")), (Check(9), fires(20, "100%"))),
        Case("late_series", among(late), (Check(29), fires(40, "100%"))),
        Case("healthy", among(), (Check(5), Check(20), Check(50))),
        Case("clears", among(slow_rank(2, "step", until=30)), (fires(20, "100%"), Check(40), Check(59))),
        Case("counter_restart", restart, (fires(29, "100%"), fires(40, "100%"))),
        Case("nan_gauge", nan, (Check(9), fires(20, "100%"))),
        Case("stale_end", among(ended(slow_rank(2, "step"), 25)), (fires(20, "100%"), Check(35))),
        Case("many_ranks", among(slow_rank(2, "step"), slow_rank(3, "step", begins=70)), (fires(20, "100%"),)),
        # Step times are the same on all ranks here: the others wait for this one.
        Case("slow_data", among(slow_rank(2, "data")), (Check(9), fires(20, "63.33%"))),
        Case("waits_least", among(slow_rank(2, "own")), (Check(9), fires(20, "66.67%"))),
        Case("works_longest", among(slow_rank(2, "work")), (Check(9), fires(20, "33.33%"))),
        Case("blind_is_no_witness", blind, (Check(20), Check(40))),
        Case("alone", slow_rank(0, "data"), (Check(20), Check(40))),
    ))


def state_specs() -> tuple[Spec, ...]:
    return (stalled_spec(), failed_spec(), terminated_spec(), not_started_spec(), snapshots_spec(), too_old_spec(), down_spec(),
            straggler_spec())
