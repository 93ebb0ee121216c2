"""The alerts on a run that waits for data, is slower than it was, or whose replicas differ."""

from __future__ import annotations

from cases import Case, Check, Spec, ranks_of
from timeline import LENGTH, Series, during, ended, healthy, name, rising


def climbing(first: float, *parts: tuple[float, float]) -> str:
    """A counter that rises by each of `parts` (minutes, by how much) from sample to sample."""
    value, words = first, []
    for minutes, each in parts:
        for _ in range(round(minutes * 2)):
            words.append(f"{value:g}")
            value += each
    return " ".join(words)


def loading(*parts: tuple[float, float], rank: int = 0) -> Series:
    """Seconds of the data phase in each 30."""
    return healthy(rank) | {name("gradvane_phase_seconds_total", rank, phase="data"): climbing(1, *parts)}


def starvation_spec() -> Spec:
    def fires(minute: float) -> Check:
        return Check(minute, (0,), "Run gpt: 40% of the step time is in the data phase.")

    starved: Series = {}
    for rank in range(4):
        starved |= loading((LENGTH, 12), rank=rank)
    restart = loading((30, 12)) | {
        name("gradvane_step_duration_seconds_sum"): rising(30, 30, 30) + " " + rising(30, 0, 30)}
    restart[name("gradvane_phase_seconds_total", phase="data")] = rising(30, 1, 12) + " " + rising(30, 0, 12)
    return Spec("GradvaneDataStarvation", "data-starvation", "warning", "A training run waits for its data", (
        Case("zero_initialised", loading((LENGTH, 12)), (Check(9.5), fires(20))),
        Case("late_series", {key: during((20, None)) + " " + values for key, values in loading((40, 12)).items()},
             (Check(29), fires(40))),
        Case("healthy", healthy(), (Check(5), Check(20), Check(50))),
        Case("clears", loading((30, 12), (30, 1)), (fires(20), Check(40))),
        Case("counter_restart", restart, (fires(29), fires(40))),
        Case("nan_gauge", healthy() | {name("gradvane_phase_seconds_total", phase="data"): during((LENGTH, "NaN"))},
             (Check(20), Check(50))),
        Case("stale_end", ended(loading((LENGTH, 12)), 30), (fires(20), Check(36))),
        Case("many_ranks", starved, (Check(9.5), fires(20))),
        Case("one_rank_of_four", ranks_of(4) | loading((LENGTH, 12), rank=2), (Check(20), Check(50))),
    ))


def counting(metric: str, *parts: tuple[float, float], rank: int = 0) -> Series:
    return healthy(rank) | {name(metric, rank): climbing(1000, *parts)}


def tokens(*parts: tuple[float, float], rank: int = 0) -> Series:
    return counting("gradvane_tokens_total", *parts, rank=rank)


def throughput_spec() -> Spec:
    def fires(minute: float, share: str = "40%") -> Check:
        return Check(minute, (0,), f"Run gpt: {share} below the median throughput of the last 1h.")

    drop = ((35.0, 1000.0), (25.0, 600.0))
    restart = healthy() | {name("gradvane_tokens_total"): rising(30, 1000, 1000) + " " + rising(30, 0, 1000)}
    no_tokens = {key: values for key, values in counting("gradvane_steps_total", (35, 10), (25, 5)).items()
                 if "tokens" not in key}
    late = {key: during((10, None)) + " " + values for key, values in tokens((30, 1000), (20, 600)).items()}
    slower: Series = {}
    for rank in range(4):
        slower |= tokens(*drop, rank=rank)
    return Spec("GradvaneThroughputDrop", "throughput-drop", "warning", "A training run is slower than it was", (
        Case("zero_initialised", tokens(*drop), (Check(34), Check(45), fires(55))),
        Case("late_series", late, (Check(39), Check(50), fires(58))),
        Case("healthy", healthy(), (Check(5), Check(20), Check(50))),
        Case("clears", tokens((35, 1000), (15, 600), (10, 1000)), (fires(49), Check(58))),
        Case("counter_restart", restart, (Check(29), Check(40), Check(55))),
        Case("nan_gauge", healthy() | {name("gradvane_tokens_total"): during((LENGTH, "NaN"))},
             (Check(20), Check(50))),
        Case("stale_end", ended(tokens(*drop), 52), (fires(50), Check(58))),
        Case("many_ranks", slower, (Check(34), fires(55))),
        Case("steps_alone", no_tokens, (Check(34), fires(55, "50%"))),
        Case("warm_up", tokens((10, 1000), (50, 600)), (Check(22), Check(35), Check(55))),
        Case("stands_still", tokens((35, 1000), (25, 0)), (Check(45), Check(59))),
        Case("one_rank_is_gone", ranks_of(4) | ended(healthy(3), 35), (Check(45), Check(59))),
    ))


def weighing(*norms: str) -> Series:
    together: Series = {}
    for rank, values in enumerate(norms):
        together |= healthy(rank) | {name("gradvane_weight_norm", rank): values}
    return together


def diverged_spec() -> Spec:
    def fires(minute: float) -> Check:
        return Check(minute, (0,), "Run gpt: the weight norms of its ranks were equal and are now 9.091% apart."
                     " Largest: 11. Smallest: 10.")

    same = during((LENGTH, 10))
    leaves = during((20, 10), (40, 11))
    return Spec("GradvaneReplicasDiverged", "replicas-diverged", "critical",
                "Replicas of a model have different weights", (
        Case("zero_initialised", weighing(same, same, leaves), (Check(19), Check(29), fires(31), fires(59))),
        Case("late_series", weighing(same, same, during((20, None), (40, 11))), (Check(19), fires(31))),
        Case("healthy", weighing(same, same), (Check(5), Check(20), Check(50))),
        Case("clears", weighing(same, during((20, 10), (20, 11), (20, 10))), (fires(31), Check(41), Check(59))),
        Case("counter_restart", weighing(same, during((20, 10), (2, "stale"), (38, 10))), (Check(31), Check(50))),
        Case("nan_gauge", weighing(same, during((20, 10), (40, "NaN"))), (Check(31), Check(50))),
        Case("stale_end", ended(weighing(same, leaves), 40), (fires(35), Check(41))),
        Case("many_ranks", weighing(same, leaves, same, leaves), (Check(19), fires(31))),
        # Never equal: they have different parameters.
        Case("stages", weighing(same, during((LENGTH, 12)), during((LENGTH, 7))), (Check(20), Check(50))),
        # Scraped a few steps apart.
        Case("nearly_equal", weighing(same, during((20, 10), (40, 10.05))), (Check(31), Check(50))),
        Case("alone", weighing(during((20, 10), (40, 11))), (Check(31), Check(50))),
        # Rank 0 is scraped before the others, which are stages.
        Case("alone_at_first", weighing(same, during((30, None), (30, 12))), (Check(29), Check(45), Check(59))),
    ))


def holding(peak: str, retries: str = "", rank: int = 0) -> Series:
    """The peak of the device memory, of 100 bytes."""
    return healthy(rank) | {
        name("gradvane_device_memory_peak_bytes", rank): peak,
        name("gradvane_device_memory_limit_bytes", rank): during((LENGTH, 100)),
        name("gradvane_device_allocation_retries_total", rank): retries or during((LENGTH, 0))}


def memory_spec() -> Spec:
    def fires(minute: float, ranks: str = "1 rank", first: int = 0, told: str = "97.72%") -> Check:
        return Check(minute, (0,), f"Run gpt, {ranks}: the device memory is near its limit. First rank: {first}."
                     f" Tensors have held up to {told} of it.")

    def retried(minute: float, count: int) -> Check:
        return Check(minute, (0,), "Run gpt, 1 rank: the device memory is near its limit. First rank: 0. Tensors have "
                     f"held up to 60% of it. Allocations retried on one rank in 5m: {count}.")

    grows = during((5, 90)) + " " + rising(55, 97.5, 0.01)  # a leak, up to 98.6
    of_four = ranks_of(4) | holding(grows, rank=1) | holding(grows, rank=2)
    often = rising(LENGTH, 0, 0.5)  # once a minute
    burst = " ".join(str(value) for value in [0] * 20 + [2, 4, 6] + [6] * 97)
    return Spec("GradvaneDeviceMemoryNearLimit", "device-memory-near-limit", "warning",
                "A training run is about to run out of device memory", (
        Case("zero_initialised", holding(grows), (Check(4), Check(14), fires(16), fires(50, told="98.4%"))),
        Case("late_series", {key: during((20, None)) + " " + values for key, values in
                             holding(during((5, 90)) + " " + rising(35, 97.5, 0.01)).items()},
             (Check(24), Check(34), fires(36))),
        Case("healthy", holding(during((5, 90)) + " " + rising(55, 95, 0.01)), (Check(5), Check(20), Check(50))),
        Case("clears", holding(during((5, 90)) + " " + rising(20, 97.5, 0.01) + " " + during((35, 97.9))),
             (fires(20, told="97.8%"), Check(32), Check(59))),
        Case("counter_restart", holding(during((LENGTH, 60)), during((30, 40), (30, 0))), (Check(29), Check(40))),
        Case("nan_gauge", holding(during((LENGTH, "NaN"))), (Check(20), Check(50))),
        Case("stale_end", ended(holding(grows), 40), (fires(35, told="98.1%"), Check(46))),
        Case("many_ranks", of_four, (Check(14), fires(16, "2 ranks", first=1))),
        # Set up to fill the memory: the peak of the first steps stays.
        Case("full_from_the_start", holding(during((1, 30), (1, 80), (58, 99))), (Check(11), Check(16), Check(59))),
        Case("retries", holding(during((LENGTH, 60)), often), (Check(9), retried(40, 5))),
        Case("one_burst_of_retries", holding(during((LENGTH, 60)), burst), (Check(13), Check(18), Check(45))),
        Case("no_device", healthy(), (Check(5), Check(50))),
    ))


def pace_specs() -> tuple[Spec, ...]:
    return starvation_spec(), throughput_spec(), memory_spec(), diverged_spec()
