"""The alerts on ranks that are missing and on runs that are gone."""

from __future__ import annotations

from cases import Case, Check, Spec, ranks_of
from state_cases import in_state, killed
from timeline import LENGTH, Series, cut, during, ended, healthy, name


def sized(series: Series, rank: int, size: object) -> Series:
    return series | {name("gradvane_world_size", rank): during((LENGTH, size))}


def of_four(*others: Series) -> Series:
    """Four ranks of four."""
    together = ranks_of(4)
    for rank in range(4):
        together = sized(together, rank, 4)
    for series in others:
        together |= series
    return together


def gone(rank: int, after: float) -> Series:
    """With its target."""
    return ended(sized(healthy(rank), rank, 4), after)


def away(rank: int, begins: float, until: float) -> Series:
    """Gone with its target, and back."""
    first, last = round(begins * 2), round(until * 2)
    series = {}
    for key, values in sized(healthy(rank), rank, 4).items():
        whole = cut(values, round(LENGTH * 2)).split()
        series[key] = " ".join([*whole[:first], "stale", f"_x{last - first - 1}", *whole[last:]])
    return series


def missing_spec() -> Spec:
    def fires(minute: float, count: int = 1) -> Check:
        verb = "does" if count == 1 else "do"
        return Check(minute, tuple(range(count)), f"Run gpt: {count} of its 4 ranks {verb} not report.")

    three = {key: values for key, values in of_four().items() if "host-3" not in key}
    one_by_one = of_four(*(ended(sized(in_state("finished", (19 + rank, 0), (41 - rank, 1), rank=rank), rank, 4),
                                 19.5 + rank) for rank in range(4)))
    others_finished = of_four(*(ended(sized(in_state("finished", (20, 0), (40, 1), rank=rank), rank, 4), 21)
                                for rank in range(1, 4)))
    return Spec("GradvaneRanksMissing", "ranks-missing", "critical", "Ranks of a training run are missing", (
        Case("zero_initialised", of_four(gone(3, 20)), (Check(19.5), Check(24), fires(26), fires(59))),
        Case("late_series", three, (Check(4), fires(6))),
        Case("healthy", of_four(), (Check(5), Check(20), Check(50))),
        Case("clears", of_four(away(3, 20, 30)), (fires(26), Check(30.5), Check(50))),
        Case("counter_restart", of_four(away(3, 20, 23)), (Check(21), Check(24), Check(40))),
        Case("nan_gauge", sized(of_four(), 1, "NaN"), (Check(5), Check(40))),
        Case("stale_end", of_four(*(gone(rank, 20) for rank in range(4))), (Check(19), Check(26), Check(50))),
        Case("many_ranks", of_four(gone(1, 20), gone(3, 20)), (Check(19.5), fires(26, 2))),
        # A killed one whose target stays is missing as well.
        Case("target_is_down", of_four(killed(3)), (Check(19.5), fires(26))),
        Case("end_one_after_the_other", one_by_one, (Check(19.5), Check(21), Check(23), Check(30))),
        Case("rank_0_works_on_after_the_end_of_the_others", others_finished, (Check(26), Check(50))),
        Case("one_is_killed_before_the_end_of_the_others", others_finished | gone(2, 20),
             (Check(24), fires(26), fires(50))),
        Case("size_unknown", ranks_of(3), (Check(10), Check(50))),
    ))


def of_job(series: Series, job: str) -> Series:
    return {key.replace('job="gradvane"', f'job="{job}"'): values for key, values in series.items()}


def begun(series: Series, minute: float) -> Series:
    """The same, but that much later."""
    return {key: f"_x{round(minute * 2)} " + values for key, values in series.items()}


def vanished_spec() -> Spec:
    def fires(minute: float, ranks: tuple[int, ...] = (0,), step: int = 400) -> Check:
        return Check(minute, ranks, "Run gpt, {ranks}: all series are gone, and no rank reported an end."
                     f" Latest step seen: {step}.")

    all_gone: Series = {}
    for rank in range(4):
        all_gone |= ended(healthy(rank), 20)
    reported = ended(in_state("finished", (19.5, 0), (40.5, 1)), 20)
    other = {key.replace('run="gpt"', 'run="next"'): values for key, values in healthy().items()}
    return Spec("GradvaneRunVanished", "run-vanished", "critical", "A training run is gone without an end", (
        Case("zero_initialised", ended(healthy(), 20), (Check(19.5), Check(24), fires(26), fires(59))),
        Case("late_series", begun(ended(healthy(), 10), 10), (Check(19.5), fires(26, step=200))),
        Case("healthy", healthy(), (Check(5), Check(26), Check(50))),
        Case("clears", ended(healthy(), 20) | begun(healthy(1), 40), (fires(39), Check(40.5), Check(55))),
        Case("counter_restart", ended(healthy(), 20) | begun(healthy(1), 23), (Check(21), Check(26), Check(50))),
        Case("nan_gauge", ended(in_state("running", (LENGTH, "NaN")), 20), (Check(19), Check(30))),
        Case("stale_end", reported, (Check(19), Check(26), Check(50))),
        Case("many_ranks", all_gone, (Check(19.5), fires(26, (0, 1, 2, 3)))),
        Case("failed", ended(in_state("failed", (19.5, 0), (40.5, 1)), 20), (Check(26), Check(50))),
        # Those who see a process: GradvaneTrainingTargetDown and GradvaneRanksMissing.
        Case("target_still_listed", killed(), (Check(19), Check(26), Check(50))),
        Case("some_are_left", all_gone | healthy(2), (Check(26), Check(50))),
        Case("scrape_gap", away(0, 20, 24), (Check(21), Check(26), Check(50))),
        Case("job_renamed", ended(healthy(), 20) | begun(of_job(healthy(1), "other"), 20.5),
             (Check(19.5), Check(26), Check(50))),
        Case("one_rank_reported_the_end", reported | ended(healthy(1), 20), (Check(19.5), Check(26), Check(50))),
        Case("another_run_on_its_port", ended(healthy(), 20) | begun(other, 20.5) | {
            'up{job="gradvane",instance="host-0:9464"}': during((LENGTH, 1))}, (Check(19.5), fires(26))),
    ))


def elsewhere(series: Series) -> Series:
    """The same run, as another host has it."""
    return {key.replace('instance="host-', 'instance="other-'): values for key, values in series.items()}


def shared_spec() -> Spec:
    def fires(minute: float, rank: int = 0) -> Check:
        return Check(minute, (rank,), "Run gpt: 2 processes report as one rank. Their numbers are mixed in charts and rules."
                     f" First rank: {rank}.")

    nan = {name("gradvane_run_info", world_size="4", local_rank="0", torch="2.11.0"): during((LENGTH, "NaN"))}
    return Spec("GradvaneRunNameShared", "run-name-shared", "warning", "Two trainings have one name", (
        Case("zero_initialised", healthy() | elsewhere(healthy()), (Check(4), fires(6), fires(50))),
        Case("late_series", healthy() | begun(elsewhere(healthy(minutes=40)), 20), (Check(24), fires(26))),
        Case("healthy", ranks_of(4), (Check(5), Check(20), Check(50))),
        Case("clears", healthy() | ended(elsewhere(healthy()), 20), (fires(19), Check(21), Check(50))),
        # Back on another host; the old target goes with a scrape or two.
        Case("counter_restart", ended(healthy(), 20) | begun(elsewhere(healthy(minutes=41)), 19), (Check(20), Check(50))),
        Case("nan_gauge", healthy() | nan, (Check(20), Check(50))),
        Case("stale_end", ended(healthy(), 20) | ended(elsewhere(healthy()), 20), (fires(19), Check(21))),
        Case("many_ranks", ranks_of(4) | elsewhere(ranks_of(4)), (fires(20),)),
        Case("one_rank_of_four", ranks_of(4) | elsewhere(healthy(2)), (fires(20, 2),)),
        Case("another_job", healthy() | of_job(elsewhere(healthy()), "other"), (Check(20),)),
    ))


def presence_specs() -> tuple[Spec, ...]:
    return missing_spec(), vanished_spec(), shared_spec()
