"""The host syncs of the known run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from board_check.known_shapes import Course, Known, between, counted, flat, less, only, stairs, steady

KINDS = "device stream event memcpy d2h_read async_copy_blocked alloc_free module_load rejected_in_capture".split()
PHASES = "data forward backward optimizer other".split()
BUDGET = 4


@dataclass(frozen=True)
class Place:
    name: str
    kind: str
    phase: str
    calls: float
    """in a step"""
    seconds: float
    """in a step"""


PLACES = (
    Place("train.py:88 train_step", "d2h_read", "other", 2, 0.03),
    Place("data.py:57 to_device", "async_copy_blocked", "data", 1, 0.006),
    Place("train.py:102 clip", "stream", "optimizer", 1, 0.004),
)
ADDED = Place("model.py:141 forward", "d2h_read", "forward", 4, 0.06)
"""from minute 16 on"""


def series(rank: int, per_step: Callable[..., Course], minute: Callable[[float], float]) -> list[Known]:
    asked = minute(16)
    end = 1740.0
    found: list[Known] = []

    def add(metric: str, course: Course, **labels: str) -> None:
        found.append(Known(metric, labels, course))

    def since_asked(amount: float) -> Course:
        before = per_step(amount)(asked) or 0.0
        return lambda t: max(0.0, (per_step(amount)(t) or 0.0) - before)

    def total(value: str, seconds: bool) -> Course:
        """Of the places whose kind or phase this is."""
        chosen = [place for place in PLACES if value in (place.kind, place.phase)]
        always = per_step(sum(place.seconds if seconds else place.calls for place in chosen))
        if value not in (ADDED.kind, ADDED.phase):
            return always
        added = since_asked(ADDED.seconds if seconds else ADDED.calls)
        return lambda t: (always(t) or 0.0) + (added(t) or 0.0)

    for kind in KINDS:
        for origin in ("training", "gradvane", "profiler"):
            ours = origin == "training"
            rejected = kind == "rejected_in_capture" and ours and rank == 1
            calls = counted(minute(4), minute(4.5)) if rejected else total(kind, False) if ours else flat(0)
            add("gradvane_host_syncs_total", calls, kind=kind, origin=origin)
            add("gradvane_host_sync_seconds_total", total(kind, True) if ours else flat(0), kind=kind, origin=origin)
    for phase in PHASES:
        add("gradvane_host_syncs_by_phase_total", total(phase, False), phase=phase)
        add("gradvane_host_sync_phase_seconds_total", total(phase, True), phase=phase)
    for place in PLACES:
        add("gradvane_host_sync_location_total", per_step(place.calls), location=place.name)
        add("gradvane_host_sync_location_seconds_total", per_step(place.seconds), location=place.name)
    add("gradvane_host_sync_location_total", only(since_asked(ADDED.calls), asked), location=ADDED.name)
    add("gradvane_host_sync_location_seconds_total", only(since_asked(ADDED.seconds), asked), location=ADDED.name)
    add("gradvane_host_sync_location_total", flat(0), location="other")
    add("gradvane_host_sync_location_seconds_total", flat(0), location="other")
    for origin, polls in (("training", 3.0), ("gradvane", 6.0)):
        add("gradvane_device_polls_total", per_step(polls), origin=origin)
        add("gradvane_device_poll_seconds_total", per_step(polls * 2e-6), origin=origin)
        add("gradvane_step_host_syncs", stairs((0, 4), (asked, 8)) if origin == "training" else flat(0),
            origin=origin)
        add("gradvane_sync_budget", flat(BUDGET if origin == "training" else 0), origin=origin)
        over = since_asked(1) if origin == "training" else flat(0)
        add("gradvane_sync_budget_breaches_total", over, origin=origin)
    blind = (minute(7), minute(8)) if rank == 0 else (end, end)
    add("gradvane_sync_source_info", lambda t: None if blind[0] <= t < blind[1] else 1.0, source="cupti",
        reason="counting")
    if rank == 0:
        add("gradvane_sync_source_info", only(flat(1), *blind), source="none", reason="yielded")
    hidden = between(*blind, 1.0)
    add("gradvane_sync_coverage_seconds_total", less(steady(1.0), hidden), state="covered")
    add("gradvane_sync_coverage_seconds_total", hidden, state="blind")
    add("gradvane_sync_gaps_total", counted(minute(7)) if rank == 0 else flat(0))
    for reason in "threads sites events unbalanced".split():
        add("gradvane_sync_records_dropped_total", flat(0), reason=reason)
    return found
